"""ort-core: ONNX models on any hardware, with onnxruntime's names and signatures."""

from typing import TYPE_CHECKING

from ort_core.forks import no_fork as _no_fork

__version__ = "0.1.0"  # the one version of the repository: package builds read this line

if TYPE_CHECKING:
    from ort_core import errors as errors
    from ort_core.compiler import ModelCompiler as ModelCompiler
    from ort_core.custom_ops.custom_op import custom_op as custom_op
    from ort_core.custom_ops.elementwise_op import elementwise_op as elementwise_op
    from ort_core.custom_ops.elementwise_op import row_op as row_op
    from ort_core.custom_ops.library import OpLibrary as OpLibrary
    from ort_core.errors import OrtError as OrtError
    from ort_core.options import ExecutionMode as ExecutionMode
    from ort_core.options import ExecutionOrder as ExecutionOrder
    from ort_core.options import GraphOptimizationLevel as GraphOptimizationLevel
    from ort_core.options import OrtCompileApiFlags as OrtCompileApiFlags
    from ort_core.options import OrtExecutionProviderDevicePolicy as OrtExecutionProviderDevicePolicy
    from ort_core.options import RunOptions as RunOptions
    from ort_core.options import SessionOptions as SessionOptions
    from ort_core.session import InferenceSession as InferenceSession
    from ort_core.session_api.adapters import AdapterFormat as AdapterFormat
    from ort_core.session_api.adapters import LoraAdapter as LoraAdapter
    from ort_core.session_api.io_binding import IOBinding as IOBinding
    from ort_core.session_api.logger_callback import set_default_logger_callback as set_default_logger_callback
    from ort_core.session_api.node_arg import ModelMetadata as ModelMetadata
    from ort_core.session_api.node_arg import NodeArg as NodeArg
    from ort_core.session_api.process import get_available_providers as get_available_providers
    from ort_core.session_api.process import get_device as get_device
    from ort_core.session_api.process import set_default_logger_severity as set_default_logger_severity
    from ort_core.session_api.process import set_seed as set_seed
    from ort_core.tensors.device import DeviceDirectory as DeviceDirectory
    from ort_core.tensors.device import OrtDevice as OrtDevice
    from ort_core.tensors.ort_value import OrtValue as OrtValue
    from ort_core.tensors.sparse_tensor import SparseTensor as SparseTensor

# Where each public name lives. Nothing is imported before it is asked for (PEP 562).
_HOMES = {
    "session": ("InferenceSession",),
    "compiler": ("ModelCompiler",),
    "model_packages.authoring": ("ModelPackage", "ModelPackageWriteMode"),
    "model_packages.selecting": ("ModelPackageComponentContext", "ModelPackageContext", "ModelPackageOptions"),
    "custom_ops.custom_op": ("custom_op",),
    "custom_ops.elementwise_op": ("elementwise_op", "row_op"),
    "custom_ops.library": ("OpLibrary",),
    "ep_context.data": ("OrtEpContextData", "OrtEpContextDataBuffer", "OrtExternalInitializerInfo"),
    "errors": ("OrtError",),
    "options": (
        "ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "OrtCompileApiFlags",
        "OrtCompiledModelCompatibility", "OrtDeviceEpIncompatibilityReason", "OrtExecutionProviderDevicePolicy",
        "RunOptions", "SessionOptions",
    ),
    "session_api.adapters": ("AdapterFormat", "LoraAdapter"),
    "session_api.devices": (
        "OrtEpAssignedNode", "OrtEpAssignedSubgraph", "OrtEpDevice", "OrtHardwareDevice", "OrtSyncStream",
    ),
    "session_api.io_binding": ("IOBinding", "SessionIOBinding"),
    "session_api.logger_callback": ("set_default_logger_callback",),
    "session_api.named_outputs": ("NamedOutputs",),
    "session_api.node_arg": ("ModelMetadata", "NodeArg"),
    "session_api.process": (
        "create_and_register_allocator", "create_and_register_allocator_v2", "disable_telemetry_events",
        "enable_telemetry_events", "get_all_providers", "get_available_providers", "get_build_info",
        "get_compatibility_info_from_model", "get_compatibility_info_from_model_bytes", "get_device",
        "get_ep_devices", "get_hardware_device_ep_incompatibility_details", "get_hardware_devices",
        "get_model_compatibility_for_ep_devices", "get_version_string", "has_collective_ops", "preload_dlls",
        "print_debug_info", "register_execution_provider_library",
        "set_default_logger_severity", "set_default_logger_verbosity", "set_global_thread_pool_sizes", "set_seed",
        "unregister_execution_provider_library",
    ),
    "tensors.device": ("OrtDevice",),
    "tensors.memory_facts": (
        "ArenaExtendStrategy", "OrtAllocatorType", "OrtArenaCfg", "OrtDeviceMemoryType", "OrtDeviceVendorId",
        "OrtHardwareDeviceType", "OrtMemType", "OrtMemoryInfo", "OrtMemoryInfoDeviceType",
    ),
    "tensors.ort_value": ("OrtValue", "copy_tensors"),
    "tensors.ort_value_vector": ("OrtValueVector",),
    "tensors.sparse_tensor": (
        "OrtSparseFormat", "SparseBlockSparseView", "SparseCooView", "SparseCsrView", "SparseTensor",
    ),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = ("errors", "settings", "tolerances")

__all__ = ["__version__", *_MODULE_OF, *_MODULES]


def __getattr__(name: str) -> object:
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"ort_core.{name}")
    if name not in _MODULE_OF:
        from ort_core.errors import did_you_mean

        raise AttributeError(f"module 'ort_core' has no attribute {name!r}.{did_you_mean(name, list(_MODULE_OF))}")
    with _no_fork():  # a child would wait for ever for the import of a thread that it does not have
        module = importlib.import_module(f"ort_core.{_MODULE_OF[name]}")
    if module.__name__.startswith("ort_core.tensors."):
        from ort_core.tensors.device import use_directory_of

        use_directory_of(_default_devices)  # values made outside any session reach plugins' devices through this door
    found = getattr(module, name)
    globals()[name] = found
    return found


def _default_devices() -> "DeviceDirectory":
    from ort_core.environment import default_environment

    return default_environment().devices


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
