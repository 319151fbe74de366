"""The drop-in has onnxruntime's names: of modules, members of classes and parameters. All but these."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")  # which the program runs on, too

PROGRAM = Path(__file__).with_name("list_names.py")
KERNELS = "describes compiled kernels, for onnxruntime's own documentation"
NATIVE = "of the native class below the public one, which has all of it"
ABSENT = {  # names of modules
    "import_capi_exception": "None, left over from an import",
    "SessionObjectInitializer": "an internal of onnxruntime's Python code",
    "get_session_initializer": "as above",
    "get_all_opkernel_def": KERNELS, "get_registered_ep_kernel_defs": KERNELS, "opkernel": KERNELS,
    "schemadef": KERNELS,
    "pack_fp4_weights_for_cuda_moe_gemm": "packs for one CUDA kernel of onnxruntime",
    "get_ort_device_type": "an internal of onnxruntime's Python code",
    "get_vendor_id_for_device_type": "as above",
    "make_get_initializer_location_func_wrapper": "as above",
}  # fmt: skip
IMPORTED = {  # what a module imported for itself, and is to be had where it is defined
    "onnxruntime": {"onnxruntime_validation"},
    "onnxruntime.backend.backend": {
        "InferenceSession", "OnnxRuntimeBackendRep", "SessionOptions", "get_available_providers", "get_device",
    },
    "onnxruntime.backend.backend_rep": {"RunOptions"},
}  # fmt: skip
ABSENT_ATTRIBUTES = {  # of a session: memory of devices, captured graphs, packages of models
    "_captured_graph_bindings", "_from_model_package", "_input_epdevices", "_input_meminfos", "_output_meminfos",
}  # fmt: skip
ENUMERATION = {"name", "value"}  # of members, which Python's enumerations have, too
ABSENT_MEMBERS = {  # class -> (members, why)
    "OrtArenaCfg": ({"arena_extend_strategy", "initial_chunk_size_bytes", "initial_growth_chunk_size_bytes",
                     "max_dead_bytes_per_chunk", "max_mem", "max_power_of_two_extend_bytes"}, "of instances only"),
    "OrtCompileApiFlags": ({"NONE"}, "a flag of no bits: there, and not listed by Python"),
    "OrtMemType": ({"CPU"}, "another name of a number: there, and not listed by Python"),
    "OrtDeviceEpIncompatibilityReason": ({"NONE", "UNKNOWN"}, "as OrtCompileApiFlags"),
    "OrtEpContextDataBuffer": ({"max_size"}, "of instances only"),
    "OrtEpDevice": ({"device", "ep_metadata", "ep_name", "ep_options", "ep_vendor"}, "of instances only"),
    "OrtHardwareDevice": ({"metadata", "type"}, "of instances only"),
    "AdapterFormat": ({"adapter_version", "format_version", "model_version", "parameters"}, NATIVE),
    "InferenceSession": ({"is_webgpu_graph_capture_enabled", "webgpu_context_id"}, NATIVE),
    "OrtValue": ({"ortvalue_from_shape_and_onnx_type", "ortvalue_from_shape_and_onnx_type_for_memory_info",
                  "ortvalue_from_shape_and_type_for_memory_info"}, NATIVE),
    "SparseTensor": ({"blocksparse_from_numpy", "get_blocksparse_data", "get_coo_data", "get_csrc_data"}, NATIVE),
}  # fmt: skip


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """The names of onnxruntime, and of the drop-in."""
    target, found = tmp_path_factory.mktemp("names") / "names.json", []
    for runner in ([], ["-m", "ort_core.dropin"]):
        subprocess.run([sys.executable, *runner, str(PROGRAM), str(target)], check=True, capture_output=True)
        found.append(json.loads(target.read_text(encoding="utf-8")))
    return found


@pytest.fixture
def model_text():
    """The bytes of a model with one node."""
    from onnx import parser

    text = '<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y) { y = Relu (x) }'
    return parser.parse_model(text).SerializeToString()


def dropin_session(source):
    from ort_core.dropin.lenient import InferenceSession

    return InferenceSession(source, providers=["CPUExecutionProvider"])


def test_every_name_of_a_module_is_there_or_stands_in_the_table(names):
    theirs, ours = names
    absent = {
        name
        for module, listed in theirs.items()
        for name in listed.keys() - ours[module].keys() - IMPORTED.get(module, set())
    }
    assert absent == ABSENT.keys()
    assert sum(map(len, theirs.values())) > 300


def test_every_member_of_a_class_is_there_or_stands_in_the_table(names):
    theirs, ours = names
    absent: dict[str, set[str]] = {}
    for module, listed in theirs.items():
        for name in listed.keys() & ours[module].keys():
            lacking = listed[name].get("members", {}).keys() - ours[module][name].get("members", {}).keys()
            if lacking - ENUMERATION:
                absent.setdefault(name, set()).update(lacking - ENUMERATION)
    assert absent == {name: members for name, (members, _) in ABSENT_MEMBERS.items()}


def test_parameters_have_onnxruntimes_names(names):
    theirs, ours = names
    others = set()
    for module, listed in theirs.items():
        for name in listed.keys() & ours[module].keys():
            own = ours[module][name]
            pairs = [("", listed[name].get("parameters"), own.get("parameters"))]
            members = listed[name].get("members", {})
            pairs += [(key, stated, own.get("members", {}).get(key)) for key, stated in members.items()]
            for key, stated, found in pairs:
                if stated is None or found is None or "kwargs" in found:
                    continue
                if set(stated) - set(found):
                    others.add(f"{name} {key}".strip())
    assert others == {"OrtDevice"}  # its constructor takes a native object there; OrtDevice.make is for programs


def test_members_that_are_not_listed_are_there():
    import ort_core as ort

    assert ort.OrtCompileApiFlags.NONE == 0
    assert ort.OrtMemType.CPU == ort.OrtMemType.CPU_OUTPUT
    assert ort.OrtDeviceEpIncompatibilityReason.NONE == 0
    assert ort.OrtArenaCfg({}).max_mem is not None


def test_members_of_enumerations_print_as_onnxruntimes():
    import onnxruntime

    import ort_core as ort

    enumerations = [name for name in dir(onnxruntime) if hasattr(getattr(onnxruntime, name), "__members__")]
    for name in enumerations:
        theirs, ours = getattr(onnxruntime, name).__members__, getattr(ort, name)
        for member, value in theirs.items():
            own = getattr(ours, member)
            assert (str(own), f"{own}", repr(own)) == (str(value), f"{value}", repr(value))
    assert len(enumerations) > 10


def test_a_sparse_tensor_gives_its_dense_shape_as_a_list():
    import numpy as np
    import onnxruntime

    import ort_core as ort

    shapes = []
    for module in (onnxruntime, ort):
        given = ([3, 3], np.ones(2, np.float32), np.array([0, 4]), module.OrtDevice.make("cpu", 0))
        shapes.append(module.SparseTensor.sparse_coo_from_numpy(*given).dense_shape())
    assert shapes == [[3, 3], [3, 3]]
    assert isinstance(shapes[1], list)


def test_a_value_inside_exports_itself_by_dlpack():
    import numpy as np

    import ort_core as ort

    value = ort.OrtValue.ortvalue_from_numpy(np.arange(3, dtype=np.float32))
    again = ort.OrtValue.from_dlpack(value._ortvalue.to_dlpack())
    assert again.numpy().tolist() == [0, 1, 2]


def test_a_session_has_the_attributes_of_onnxruntimes_class_or_they_stand_in_the_table(model_text):
    import onnxruntime

    theirs = vars(onnxruntime.InferenceSession(model_text, providers=["CPUExecutionProvider"]))
    ours = dropin_session(model_text)
    assert {name for name in theirs if not hasattr(ours, name)} == ABSENT_ATTRIBUTES
    for name in ("_model_path", "_read_config_from_model", "_enable_fallback", "_fallback_providers", "_providers"):
        assert getattr(ours, name) == theirs[name], name


def test_a_session_of_bytes_gives_them_back_as_a_model_that_runs_alike(model_text, tmp_path):
    import numpy as np
    import onnx

    session, target = dropin_session(model_text), tmp_path / "again.onnx"
    onnx.save(session._model_bytes, target)
    feeds = {"x": np.arange(-2, 1, dtype=np.float32)}
    assert dropin_session(str(target))._model_bytes is None
    assert np.array_equal(dropin_session(str(target)).run(None, feeds)[0], session.run(None, feeds)[0])
