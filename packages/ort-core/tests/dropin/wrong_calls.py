"""Calls of onnxruntime's API with one argument of a wrong kind: ``python wrong_calls.py FILE`` writes what each gives.

Every function stands in a table with arguments that fit; each argument is then replaced by things that do not, left
out, or given twice. The same program runs on onnxruntime and, by the drop-in, on this project;
``test_same_refusals.py`` compares.
"""

import json
import logging
import os
import sys
import tempfile
import warnings
from functools import partial

import numpy as np
import onnxruntime as ort
import onnxruntime.backend as backend
from onnx import parser
from onnxruntime.capi import _pybind_state as native

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
ort.set_default_logger_severity(4)
TEXT = '<ir_version: 8, opset_import: ["": 13]> g (float[N, 4] x) => (float[N, 4] y) {y = Relu(x)}'
MODEL = parser.parse_model(TEXT).SerializeToString()
X, Y = np.zeros((1, 4), "f"), np.zeros((1, 4), "f")
CPU = ["CPUExecutionProvider"]
TWO, THREE = np.array([1, 2], np.int64), np.array([3, 3], np.int64)


class Nothing:
    """An object that fits nowhere."""


def session():
    return ort.InferenceSession(MODEL, providers=CPU)


SESSION = session()  # bindings are of one session


def value():
    return ort.OrtValue.ortvalue_from_numpy(X)


def binding():
    bound = SESSION.io_binding()
    bound.bind_cpu_input("x", X)
    bound.bind_output("y")
    return bound


def device():
    return ort.OrtDevice.make("cpu", 0)


def memory():
    return ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)


def sparse():
    return ort.SparseTensor.sparse_coo_from_numpy(THREE, np.ones(2, "f"), TWO, device())


def vector():
    found = native.OrtValueVector()
    found.push_back(value()._ortvalue)
    return found


def nothing(*values):
    return None


Options, RunOptions, Value = ort.SessionOptions, ort.RunOptions, ort.OrtValue
# name -> (what makes the function, its arguments by name: what makes a fitting one, how many must be there)
CALLS = {}


def function(name, make, required=None, /, **arguments):
    CALLS[name] = (make, arguments, len(arguments) if required is None else required)


def methods(title, make, *names):
    for name in names:
        function(f"{title}.{name}", lambda name=name: getattr(make(), name))


def attributes(title, kind, **values):
    for name, fitting in values.items():
        function(f"{title} {name}", lambda name=name: partial(setattr, kind(), name), value=lambda v=fitting: v)


function(
    "InferenceSession",
    lambda: ort.InferenceSession,
    1,
    path_or_bytes=lambda: MODEL,
    sess_options=Options,
    providers=lambda: CPU,
    provider_options=lambda: [{}],
)
methods(
    "session",
    session,
    "get_inputs",
    "get_outputs",
    "get_overridable_initializers",
    "get_modelmeta",
    "get_providers",
    "get_provider_options",
    "get_session_options",
    "io_binding",
    "end_profiling",
    "disable_fallback",
    "enable_fallback",
    "get_profiling_start_time_ns",
    "get_tuning_results",
)
function(
    "session.run",
    lambda: session().run,
    2,
    output_names=lambda: ["y"],
    input_feed=lambda: {"x": X},
    run_options=RunOptions,
)
function(
    "session.run_async",
    lambda: session().run_async,
    4,
    output_names=lambda: ["y"],
    input_feed=lambda: {"x": X},
    callback=lambda: nothing,
    user_data=nothing,
    run_options=RunOptions,
)
function(
    "session.run_with_ort_values",
    lambda: session().run_with_ort_values,
    2,
    output_names=lambda: ["y"],
    input_dict_ort_values=lambda: {"x": value()},
    run_options=RunOptions,
)
function("session.run_with_iobinding", lambda: SESSION.run_with_iobinding, 1, iobinding=binding, run_options=RunOptions)
function(
    "session.run_with_ortvaluevector",
    lambda: session().run_with_ortvaluevector,
    run_options=RunOptions,
    feed_names=lambda: ["x"],
    feeds=vector,
    fetch_names=lambda: ["y"],
    fetches=native.OrtValueVector,
    fetch_devices=lambda: [device()._get_c_device()],
)
function(
    "session.set_providers", lambda: session().set_providers, 0, providers=lambda: CPU, provider_options=lambda: [{}]
)
function("session.set_ep_dynamic_options", lambda: session().set_ep_dynamic_options, options=lambda: {})
function("binding.bind_cpu_input", lambda: binding().bind_cpu_input, name=lambda: "x", arr_on_cpu=lambda: X)
function(
    "binding.bind_input",
    lambda: binding().bind_input,
    name=lambda: "x",
    device_type=lambda: "cpu",
    device_id=lambda: 0,
    element_type=lambda: np.float32,
    shape=lambda: [1, 4],
    buffer_ptr=lambda: X.ctypes.data,
)
function("binding.bind_ortvalue_input", lambda: binding().bind_ortvalue_input, name=lambda: "x", ortvalue=value)
function(
    "binding.bind_output",
    lambda: binding().bind_output,
    1,
    name=lambda: "y",
    device_type=lambda: "cpu",
    device_id=lambda: 0,
    element_type=lambda: np.float32,
    shape=lambda: [1, 4],
    buffer_ptr=lambda: Y.ctypes.data,
)
function("binding.bind_ortvalue_output", lambda: binding().bind_ortvalue_output, name=lambda: "y", ortvalue=value)
methods(
    "binding",
    binding,
    "synchronize_inputs",
    "synchronize_outputs",
    "get_outputs",
    "get_outputs_as_ortvaluevector",
    "clear_binding_inputs",
    "clear_binding_outputs",
)
function(
    "value.ortvalue_from_numpy",
    lambda: Value.ortvalue_from_numpy,
    1,
    numpy_obj=lambda: X,
    device_type=lambda: "cpu",
    device_id=lambda: 0,
    vendor_id=lambda: -1,
)
function(
    "value.ortvalue_from_numpy_with_onnx_type",
    lambda: Value.ortvalue_from_numpy_with_onnx_type,
    data=lambda: X,
    onnx_element_type=lambda: 1,
)
function(
    "value.ortvalue_from_shape_and_type",
    lambda: Value.ortvalue_from_shape_and_type,
    2,
    shape=lambda: [1, 4],
    element_type=lambda: np.float32,
    device_type=lambda: "cpu",
    device_id=lambda: 0,
    vendor_id=lambda: -1,
)
function("value.ort_value_from_sparse_tensor", lambda: Value.ort_value_from_sparse_tensor, sparse_tensor=sparse)
function("value.update_inplace", lambda: value().update_inplace, np_arr=lambda: X)
function("value.from_dlpack", lambda: Value.from_dlpack, 1, data=lambda: X, is_bool_tensor=lambda: False)
methods(
    "value",
    value,
    "data_ptr",
    "device_name",
    "shape",
    "data_type",
    "element_type",
    "has_value",
    "is_tensor",
    "is_sparse_tensor",
    "is_tensor_sequence",
    "numpy",
    "tensor_size_in_bytes",
    "as_sparse_tensor",
    "__dlpack__",
    "__dlpack_device__",
)
function("copy_tensors", lambda: ort.copy_tensors, 2, src=lambda: [value()], dst=lambda: [value()])
function(
    "OrtDevice.make",
    lambda: ort.OrtDevice.make,
    2,
    ort_device_name=lambda: "cpu",
    device_id=lambda: 0,
    vendor_id=lambda: -1,
)
methods("device", device, "device_id", "device_type", "device_vendor_id", "device_mem_type")
function(
    "OrtMemoryInfo",
    lambda: ort.OrtMemoryInfo,
    name=lambda: "Cpu",
    alloc_type=lambda: ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR,
    id=lambda: 0,
    mem_type=lambda: ort.OrtMemType.DEFAULT,
)
function(
    "OrtMemoryInfo.create_v2",
    lambda: ort.OrtMemoryInfo.create_v2,
    name=lambda: "Cpu",
    device_type=lambda: ort.OrtMemoryInfoDeviceType.CPU,
    vendor_id=lambda: 0,
    device_id=lambda: 0,
    mem_type=lambda: ort.OrtDeviceMemoryType.DEFAULT,
    alignment=lambda: 0,
    allocator_type=lambda: ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR,
)
function(
    "SparseTensor.sparse_coo_from_numpy",
    lambda: ort.SparseTensor.sparse_coo_from_numpy,
    dense_shape=lambda: THREE,
    values=lambda: np.ones(2, "f"),
    coo_indices=lambda: TWO,
    ort_device=device,
)
function(
    "SparseTensor.sparse_csr_from_numpy",
    lambda: ort.SparseTensor.sparse_csr_from_numpy,
    dense_shape=lambda: THREE,
    values=lambda: np.ones(2, "f"),
    inner_indices=lambda: TWO,
    outer_indices=lambda: np.array([0, 1, 2, 2], np.int64),
    ort_device=device,
)
methods("sparse", sparse, "values", "as_coo_view", "as_csrc_view", "as_blocksparse_view", "data_type", "device_name")
function("sparse.to_cuda", lambda: sparse().to_cuda, ort_device=device)
function(
    "options.add_session_config_entry",
    lambda: Options().add_session_config_entry,
    key=lambda: "session.load_model_format",
    value=lambda: "ONNX",
)
function(
    "options.get_session_config_entry",
    lambda: Options().get_session_config_entry,
    key=lambda: "session.load_model_format",
)
function(
    "options.add_free_dimension_override_by_name",
    lambda: Options().add_free_dimension_override_by_name,
    name=lambda: "N",
    size=lambda: 1,
)
function(
    "options.add_free_dimension_override_by_denotation",
    lambda: Options().add_free_dimension_override_by_denotation,
    name=lambda: "N",
    size=lambda: 1,
)
function("options.add_initializer", lambda: Options().add_initializer, name=lambda: "N", value=value)
function(
    "options.add_external_initializers",
    lambda: Options().add_external_initializers,
    names=lambda: ["N"],
    values=lambda: [value()],
)
function(
    "options.add_external_initializers_from_files_in_memory",
    lambda: Options().add_external_initializers_from_files_in_memory,
    names=lambda: ["f"],
    buffers=lambda: [b"abc"],
    lengths=lambda: [3],
)
function("options.add_provider", lambda: Options().add_provider, name=lambda: CPU[0], options=lambda: {})
function(
    "options.add_provider_for_devices",
    lambda: Options().add_provider_for_devices,
    devices=lambda: ort.get_ep_devices()[:1],
    options=lambda: {},
)
function(
    "options.set_provider_selection_policy",
    lambda: Options().set_provider_selection_policy,
    policy=lambda: ort.OrtExecutionProviderDevicePolicy.DEFAULT,
)
function("options.set_load_cancellation_flag", lambda: Options().set_load_cancellation_flag, cancel=lambda: False)
methods("options", Options, "has_providers")
function(
    "run options.add_run_config_entry",
    lambda: RunOptions().add_run_config_entry,
    key=lambda: "memory.enable_memory_arena_shrinkage",
    value=lambda: "cpu:0",
)
function("run options.add_active_adapter", lambda: RunOptions().add_active_adapter, adapter=ort.LoraAdapter)
attributes(
    "options",
    Options,
    enable_cpu_mem_arena=True,
    enable_mem_pattern=True,
    enable_mem_reuse=True,
    enable_profiling=False,
    execution_mode=ort.ExecutionMode.ORT_PARALLEL,
    execution_order=ort.ExecutionOrder.DEFAULT,
    graph_optimization_level=ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    inter_op_num_threads=1,
    intra_op_num_threads=1,
    log_severity_level=3,
    log_verbosity_level=0,
    logid="a",
    optimized_model_filepath="",
    profile_file_prefix="p",
    use_deterministic_compute=False,
    use_per_session_threads=True,
    no_such_thing=1,
)
attributes(
    "run options",
    RunOptions,
    log_severity_level=3,
    log_verbosity_level=0,
    logid="a",
    only_execute_path_to_fetches=False,
    terminate=False,
    no_such_thing=1,
)
function(
    "ModelCompiler",
    lambda: ort.ModelCompiler,
    2,
    sess_options=Options,
    input_model_path_or_bytes=lambda: MODEL,
    embed_compiled_data_into_model=lambda: False,
    external_initializers_file_path=lambda: None,
    external_initializers_size_threshold=lambda: 1024,
    flags=lambda: ort.OrtCompileApiFlags.NONE,
    graph_optimization_level=lambda: ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
)
for setter in ("set_adapter_version", "set_model_version"):
    function(f"AdapterFormat.{setter}", lambda setter=setter: getattr(ort.AdapterFormat(), setter), version=lambda: 1)
function("AdapterFormat.set_parameters", lambda: ort.AdapterFormat().set_parameters, params=lambda: {"a": value()})
function("set_default_logger_severity", lambda: ort.set_default_logger_severity, severity=lambda: 4)
function("set_default_logger_verbosity", lambda: ort.set_default_logger_verbosity, verbosity=lambda: 0)
function("set_seed", lambda: ort.set_seed, seed=lambda: 0)
function(
    "create_and_register_allocator",
    lambda: ort.create_and_register_allocator,
    memory_info=memory,
    arena_cfg=lambda: ort.OrtArenaCfg({}),
)
function(
    "create_and_register_allocator_v2",
    lambda: ort.create_and_register_allocator_v2,
    provider=lambda: CPU[0],
    memory_info=memory,
    options=lambda: {},
    arena_cfg=lambda: ort.OrtArenaCfg({}),
)
function("OrtArenaCfg", lambda: ort.OrtArenaCfg, values=lambda: {"max_mem": 0})
function("OrtArenaCfg of numbers", lambda: ort.OrtArenaCfg, a=lambda: 0, b=lambda: -1, c=lambda: -1, d=lambda: -1)
function(
    "register_execution_provider_library",
    lambda: ort.register_execution_provider_library,
    name=lambda: "x",
    path=lambda: "/no/such.so",
)
function("unregister_execution_provider_library", lambda: ort.unregister_execution_provider_library, name=lambda: "x")
function("backend.supports_device", lambda: backend.supports_device, device=lambda: "CPU")
function("vector.push_back", lambda: native.OrtValueVector().push_back, value=lambda: value()._ortvalue)
function("vector.reserve", lambda: native.OrtValueVector().reserve, count=lambda: 3)
function("GraphOptimizationLevel", lambda: ort.GraphOptimizationLevel, value=lambda: 0)
function("OrtAllocatorType", lambda: ort.OrtAllocatorType, value=lambda: 0)

UNFIT = {
    "None": lambda: None, "-1": lambda: -1, "2**70": lambda: 2**70, "text": lambda: "zz", "bytes": lambda: b"zz",
    "1.5": lambda: 1.5, "[]": list, "{}": dict, "object": Nothing, "[None]": lambda: [None], "['zz']": lambda: ["zz"],
    "{zz:3}": lambda: {"zz": 3}, "True": lambda: True, "int64": lambda: np.int64(1), "float32": lambda: np.float32(1),
    "value": value, "function": lambda: nothing,
}  # fmt: skip
CRASHES = {  # of onnxruntime, on Linux
    "session.run_with_ortvaluevector fetch_devices []", "OrtMemoryInfo name None",
    "options.add_session_config_entry key None", "options.add_session_config_entry value None",
    "options.add_provider_for_devices devices [None]", "run options.add_run_config_entry key None",
    "run options.add_run_config_entry value None",
}  # fmt: skip


def cases():
    """Yield a name, what makes the function, and what make its arguments."""
    for name, (make, arguments, required) in CALLS.items():
        listed = list(arguments.values())
        yield f"{name} fits", make, listed, {}
        yield f"{name} more", make, [*listed, lambda: 1], {}
        yield f"{name} unknown-name", make, listed, {"nope": lambda: 1}
        for count in range(required):
            yield f"{name} first-{count}", make, listed[:count], {}
        for place, argument in enumerate(arguments):
            for unfit, other in UNFIT.items():
                given = [other if i == place else fit for i, fit in enumerate(listed[: max(required, place + 1)])]
                yield f"{name} {argument} {unfit}", make, given, {}


def outcome(make, arguments, named):
    """Return ``["ok"]``, or the names of the classes of what was raised."""
    call = make()
    listed, more = [each() for each in arguments], {name: each() for name, each in named.items()}
    try:
        call(*listed, **more)
    except Exception as error:  # noqa: BLE001 - whatever it raises is what is asked
        return [kind.__name__ for kind in type(error).__mro__]
    return ["ok"]


target = os.path.abspath(sys.argv[1])
os.chdir(tempfile.mkdtemp())
found = {name: outcome(*rest) for name, *rest in cases() if name not in CRASHES}
with open(target, "w", encoding="utf-8") as file:
    json.dump(found, file)
