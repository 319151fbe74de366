"""The table of onnxruntime's modules: which names each has, and from where in ort-core they come."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import ort_core
from ort_core import errors
from ort_core.dropin.installed import installed_folder
from ort_core.errors import NoSuchFile, OrtError
from ort_core.tensors.memory_facts import ArenaExtendStrategy

VERSION = "1.32.0"  # the version of onnxruntime whose API this is
Names = dict[str, object]

_PUBLIC = (
    "AdapterFormat", "ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "LoraAdapter",
    "ModelCompiler", "ModelMetadata", "ModelPackage", "ModelPackageOptions", "ModelPackageWriteMode", "NodeArg",
    "OrtAllocatorType", "OrtArenaCfg", "OrtCompileApiFlags", "OrtDevice",
    "OrtDeviceMemoryType", "OrtDeviceVendorId", "OrtEpAssignedNode", "OrtEpAssignedSubgraph", "OrtEpContextData",
    "OrtEpContextDataBuffer", "OrtEpDevice", "OrtExecutionProviderDevicePolicy", "OrtExternalInitializerInfo",
    "OrtHardwareDevice", "OrtHardwareDeviceType", "OrtMemType", "OrtMemoryInfo", "OrtMemoryInfoDeviceType",
    "OrtSparseFormat", "OrtSyncStream", "OrtValue", "SparseTensor", "copy_tensors",
    "create_and_register_allocator", "create_and_register_allocator_v2", "disable_telemetry_events",
    "enable_telemetry_events", "get_all_providers", "get_available_providers", "get_build_info", "get_device",
    "get_ep_devices", "has_collective_ops", "preload_dlls", "print_debug_info",
    "register_execution_provider_library", "set_default_logger_callback", "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes", "set_seed", "unregister_execution_provider_library",
)  # fmt: skip
_INTERNAL = (
    "ArenaExtendStrategy", "OrtCompiledModelCompatibility", "OrtDeviceEpIncompatibilityReason", "OrtValueVector",
    "SparseBlockSparseView", "SparseCooView", "SparseCsrView", "get_compatibility_info_from_model",
    "get_compatibility_info_from_model_bytes", "get_hardware_device_ep_incompatibility_details",
    "get_hardware_devices", "get_model_compatibility_for_ep_devices",
)  # fmt: skip
_QUANTIZERS = (
    "quantize_matmul_2bits", "quantize_matmul_4bits", "quantize_matmul_8bits", "quantize_matmul_bnb4",
    "quantize_qdq_matmul_2bits", "quantize_qdq_matmul_4bits",
)  # fmt: skip
_EXCEPTIONS = (
    "DeviceReset", "EPFail", "EngineError", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf",
    "ModelLoadCanceled", "ModelLoaded", "ModelRequiresCompilation", "NoModel", "NoSuchFile", "NotFound",
    "NotImplemented", "RuntimeException",
)  # fmt: skip


def _taken(names: tuple[str, ...]) -> Names:
    return {name: getattr(ort_core, name) for name in names}


def _lenient() -> Names:
    from ort_core.dropin import lenient

    return {
        name: getattr(lenient, name)
        for name in (
            "IOBinding", "InferenceSession", "ModelPackageComponentContext", "ModelPackageContext", "RunOptions",
            "SessionOptions",
        )
    }  # fmt: skip


def get_version_string() -> str:
    """Return the version of onnxruntime whose API this is."""
    return VERSION


def _root() -> Names:
    from ort_core.dropin.native import SessionIOBinding

    return {
        "__version__": VERSION, "version": VERSION, "package_name": "onnxruntime", "cuda_version": "",
        "get_version_string": get_version_string, **_taken(_PUBLIC), **_lenient(), "SessionIOBinding": SessionIOBinding,
    }  # fmt: skip


def _native() -> Names:
    from ort_core.dropin.lenient import NativeSession
    from ort_core.kernels import weight_quantizers
    from ort_core.onnx_io.adapters import all_operator_schemas

    found = {name: getattr(errors, name) for name in _EXCEPTIONS}
    names = {**_root(), **_taken(_INTERNAL), **found}
    options = names["SessionOptions"]
    names["get_all_operator_schema"] = all_operator_schemas
    names.update(ArenaExtendStrategy.__members__)
    names["get_default_session_options"] = options
    names.update({name: getattr(weight_quantizers, name) for name in _QUANTIZERS})
    names["InferenceSession"] = NativeSession
    return names


def _collection() -> Names:
    names = _root()
    return {
        "C": importlib.import_module("onnxruntime.capi._pybind_state"),
        "Session": names["InferenceSession"],
        "check_and_normalize_provider_args": check_and_normalize_provider_args,
        **{
            name: names[name]
            for name in (
                "AdapterFormat", "IOBinding", "InferenceSession", "ModelCompiler", "OrtDevice", "OrtDeviceVendorId",
                "OrtValue", "SparseTensor", "copy_tensors",
            )
        },
    }  # fmt: skip


def check_and_normalize_provider_args(
    providers: object, provider_options: object, available_provider_names: list[str]
) -> tuple[list[str], list[dict[str, str]]]:
    """Return provider names and their options as strings, in onnxruntime's two lists."""
    from ort_core.session_api.provider_request import normalized

    if providers is None:
        return [], []
    request = normalized(providers, provider_options)  # type: ignore[arg-type]  # checked inside
    return [name for name, _ in request], [{k: str(v) for k, v in values.items()} for _, values in request]


def _validation() -> Names:
    package = ("onnxruntime", VERSION, "")
    return {
        **dict(zip(("package_name", "version", "cuda_version"), package, strict=True)),
        "check_distro_info": lambda: None,
        "get_package_name_and_version_info": lambda: package,
        "check_training_module": lambda: (False, *package),  # whether there is ORTModule
    }


def _package_info() -> Names:
    return {"package_name": "onnxruntime", "__version__": VERSION, "cuda_version": ""}


def _backend() -> Names:
    from ort_core.dropin.backend import OnnxRuntimeBackend

    return {
        "is_compatible": OnnxRuntimeBackend.is_compatible,
        "prepare": OnnxRuntimeBackend.prepare,
        "run": OnnxRuntimeBackend.run_model,
        "run_model": OnnxRuntimeBackend.run_model,
        "supports_device": OnnxRuntimeBackend.supports_device,
        "OnnxRuntimeBackend": OnnxRuntimeBackend,
    }


def _backend_rep() -> Names:
    from ort_core.dropin.backend import OnnxRuntimeBackendRep

    return {"OnnxRuntimeBackendRep": OnnxRuntimeBackendRep}


def get_example(name: str) -> str:
    """Return the path of an example model of the installed onnxruntime. Raises ``NoSuchFile``: there is none."""
    folder = installed_folder()
    found = None if folder is None else folder / "datasets" / name
    if found is not None and found.is_file():
        return str(found)
    raise NoSuchFile(f"Unable to find example {name!r}: ort-core ships no example models; give a path of your own")


def _io_binding_helper() -> Names:
    from ort_core.type_names import TypeHelper

    return {"TypeHelper": TypeHelper}


def _datasets() -> Names:
    return {"get_example": get_example}


MODULES: dict[str, Callable[[], Names]] = {
    "onnxruntime": _root,
    "onnxruntime.capi": dict,
    "onnxruntime.capi.onnxruntime_pybind11_state": _native,
    "onnxruntime.capi._pybind_state": _native,
    "onnxruntime.capi.onnxruntime_inference_collection": _collection,
    "onnxruntime.capi.onnxruntime_validation": _validation,
    "onnxruntime.capi.build_and_package_info": _package_info,
    "onnxruntime.backend": _backend,
    "onnxruntime.backend.backend": _backend,
    "onnxruntime.backend.backend_rep": _backend_rep,
    "onnxruntime.datasets": _datasets,
}
TOOLS: dict[str, Callable[[], Names]] = {  # where no onnxruntime is installed, whose own have more
    "onnxruntime.transformers": dict,
    "onnxruntime.transformers.io_binding_helper": _io_binding_helper,
}
PACKAGES = (
    "onnxruntime", "onnxruntime.capi", "onnxruntime.backend", "onnxruntime.datasets", "onnxruntime.transformers",
)  # fmt: skip


def show_codes() -> None:
    """Let errors begin with onnxruntime's code, for programs that search for it."""
    OrtError.shows_code = True
