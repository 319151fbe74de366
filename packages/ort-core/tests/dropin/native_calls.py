"""``python native_calls.py FILE`` writes what onnxruntime's native classes give, by the name of each call.

The same program runs on onnxruntime and, by the drop-in, on this project; ``test_native_classes.py`` compares.
"""

import json
import sys
import threading

import numpy as np
import onnxruntime as ort
from onnx import parser
from onnxruntime.capi import _pybind_state as native

MODEL = """<ir_version: 8, opset_import: ["": 17]>
    net (float[N, 4] x, float[1] c) => (float[N, 4] y, float[N, 4] z) { y = Mul (x, c)
        z = Add (x, c) }"""
CONTENT = parser.parse_model(MODEL).SerializeToString()
X, SCALE = np.arange(8, dtype=np.float32).reshape(2, 4), np.array([3], np.float32)
CPU = native.OrtDevice(native.OrtDevice.cpu(), native.OrtDevice.default_memory(), 0)


def own(array):
    return native.OrtValue.ortvalue_from_numpy(array, CPU)


def numbers(values):
    return [np.asarray(each.numpy() if hasattr(each, "numpy") else each).tolist() for each in values]


def vector(*arrays):
    made = native.OrtValueVector()
    for array in arrays:
        made.push_back(own(array))
    return made


def initialized(*model):
    made = native.InferenceSession(ort.SessionOptions(), *model, False)
    made.initialize_session(["CPUExecutionProvider"], [{}], set())
    return made


def from_options():
    made = initialized(CONTENT, False)
    options = list(made.get_provider_options())
    return [numbers(made.run(["z"], {"x": X, "c": SCALE}, None)), made.get_providers(), options]


def from_path():
    path = sys.argv[1] + ".onnx"
    with open(path, "wb") as file:
        file.write(CONTENT)
    return numbers(initialized(path, True).run(["y", "z"], {"x": X, "c": SCALE}, ort.RunOptions()))


def facts():
    below = session._sess
    return [
        [(each.name, each.type) for each in below.inputs_meta], [each.name for each in below.outputs_meta],
        len(below.overridable_initializers), below.model_meta.graph_name, below.get_profiling_start_time_ns,
        below.get_tuning_results(), len(below.input_meminfos), len(below.output_meminfos),
        type(below.session_options).__name__, below.end_profiling(),
    ]  # fmt: skip


def ort_values():
    made = session._sess.run_with_ort_values({"x": own(X), "c": own(SCALE)}, ["z"], None)
    return [type(made).__name__, numbers(made)]


def vectors():
    made = native.OrtValueVector()
    given = (ort.RunOptions(), ["x", "c"], vector(X, SCALE), ["z", "y"], made, [CPU, CPU])
    session._sess.run_with_ortvaluevector(*given)
    return numbers(made)


def heard():
    found, done = [], threading.Event()

    def callback(results, data, error):
        found.extend([numbers(results), data, error])
        done.set()

    session._sess.run_async(["z"], {"x": X, "c": SCALE}, callback, "mine", None)
    done.wait(30)
    return found


def zeros():
    made = [
        native.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, CPU),
        session._sess.create_ortvalue_from_shape_and_type([2], np.int64, CPU),
        session._sess.create_ortvalue_from_shape_and_onnx_type([1], 9, CPU),
    ]
    return [[each.shape(), each.data_type(), each.device_name().lower()] for each in made]


def bound_memory():
    binding, out = native.SessionIOBinding(session._sess), np.zeros((2, 4), np.float32)
    binding.bind_input("x", X)
    binding.bind_ortvalue_input("c", own(SCALE))
    binding.bind_output("y", CPU, np.float32, [2, 4], out.ctypes.data)
    binding.bind_output("z", CPU)
    session._sess.run_with_iobinding(binding, None)
    return [out.tolist(), type(binding.get_outputs()).__name__, numbers(binding.copy_outputs_to_cpu())]


def bound_addresses():
    binding = native.SessionIOBinding(session._sess)
    binding.bind_input("x", CPU, np.float32, [2, 4], X.ctypes.data)
    binding.bind_input("c", CPU, 1, [1], SCALE.ctypes.data)
    target = np.zeros((2, 4), np.float32)  # onnxruntime does not keep it
    binding.bind_ortvalue_output("z", own(target))
    binding.synchronize_inputs()
    session._sess.run_with_iobinding(binding, ort.RunOptions())
    binding.synchronize_outputs()
    found = numbers(binding.get_outputs())
    binding.clear_binding_outputs()
    binding.clear_binding_inputs()
    return found


def below_pythons():
    binding = session.io_binding()
    binding._iobinding.bind_input("x", X)
    binding.bind_cpu_input("c", SCALE)
    binding._iobinding.bind_output("z", CPU)
    session.run_with_iobinding(binding)
    kinds = [type(binding).__name__, type(binding._iobinding).__name__, isinstance(binding, ort.IOBinding)]
    return [kinds, numbers(binding._iobinding.get_outputs()), numbers(binding.get_outputs())]


def refused(call):
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever an engine raises is written down
        return [base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins"]
    return "taken"


def refusals():
    feeds = {"x": X, "c": SCALE}
    below, binding = session._sess, native.SessionIOBinding(session._sess)
    calls = (
        lambda: native.InferenceSession(ort.SessionOptions(), CONTENT, False, False).run(["y"], feeds, None),
        lambda: below.run(["nothing"], feeds, None),
        lambda: below.run([], feeds, None),
        lambda: below.run(None, feeds, None),
        lambda: below.run(["y"], {"x": X}, None),
        lambda: below.run_with_ort_values(["y"], {}, None),
        lambda: below.run_with_iobinding(binding, None),
        lambda: binding.bind_output("y"),
        lambda: binding.bind_output("y", "cpu"),
        lambda: binding.bind_input("x", CPU, np.float32),
        lambda: native.SessionIOBinding(3),
    )
    return [refused(call) for call in calls]


session = ort.InferenceSession(CONTENT, providers=["CPUExecutionProvider"])
CALLS = (
    from_options, from_path, facts, ort_values, vectors, heard, zeros, bound_memory, bound_addresses, below_pythons,
    refusals,
)  # fmt: skip
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump({call.__name__: call() for call in CALLS}, file)
