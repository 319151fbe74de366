"""A hundred and more misuses of onnxruntime's API: ``python misuses.py FILE`` writes what each of them raises.

The same program runs on onnxruntime and, by the drop-in, on this project; ``test_same_errors.py`` compares.
"""

import json
import logging
import sys
import warnings

import numpy as np
import onnxruntime as O  # noqa: N812 - a hundred and sixty lines name it
from onnx import ModelProto, TensorProto, parser
from onnx import helper as h

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
O.set_default_logger_severity(4)
HEAD = '<ir_version: 8, opset_import: ["": 13]> '


def model(t, head=HEAD):
    return parser.parse_model(head + t).SerializeToString()


relu = model("g (float[N, 4] x) => (float[N, 4] y) {y = Relu(x)}")
two = model("g (float[N, 4] x, int64[N] k) => (float[N, 4] y, int64[N] q) {y = Relu(x) q = Identity(k)}")
string = model("g (string[N] x) => (string[N] y) {y = Identity(x)}")


def session(b=relu, *a, **k):
    k.setdefault("providers", ["CPUExecutionProvider"])
    return O.InferenceSession(b, *a, **k)


X = np.zeros((1, 4), "f")
cases = {}


def case(f):
    cases[f.__name__] = f
    return f


def add(name, f):
    cases[name] = f


def bad(text, head=HEAD):
    return lambda: session(model(text, head))


add("unknown_op", bad("g (float[N] x) => (float[N] y) {y = Nope(x)}"))
add(
    "unknown_domain",
    bad("g (float[N] x) => (float[N] y) {y = my.Nope(x)}", '<ir_version: 8, opset_import: ["": 13, "my": 1]> '),
)
add(
    "unknown_ms_op",
    bad(
        "g (float[N] x) => (float[N] y) {y = com.microsoft.Nope(x)}",
        '<ir_version: 8, opset_import: ["": 13, "com.microsoft": 1]> ',
    ),
)
add("missing_import", bad("g (float[N] x) => (float[N] y) {y = com.microsoft.Gelu(x)}"))
add("no_kernel_type", bad("g (int16[N] x) => (int16[N] y) {y = Sin(x)}"))
add(
    "no_kernel_type2", bad("g (float16[N] x) => (float16[N] y) {y = Erf(x)}", '<ir_version: 8, opset_import: ["": 9]> ')
)
add("type_mismatch", bad("g (float[N] x, int64[N] k) => (float[N] y) {y = Add(x,k)}"))
add("output_type", bad("g (float[N] x) => (int64[N] y) {y = Relu(x)}"))
add("shape_mismatch", bad("g (float[2,3] x, float[4,5] z) => (float[N,M] y) {y = MatMul(x,z)}"))
add("attr_unknown", bad("g (float[N] x) => (float[N] y) {y = Relu<foo=1>(x)}"))
add("attr_missing", bad("g (float[N] x) => (int64[N] y) {y = Cast(x)}"))
add("attr_type", bad("g (float[N,4] x) => (float[N,4] y) {y = Softmax<axis=1.5>(x)}"))
add("too_many_inputs", bad("g (float[N] x) => (float[N] y) {y = Relu(x,x)}"))
add("too_few_inputs", bad("g (float[N] x) => (float[N] y) {y = Add(x)}"))
add("undefined_input", bad("g (float[N] x) => (float[N] y) {y = Relu(z)}"))
add("undefined_output", bad("g (float[N] x) => (float[N] z) {y = Relu(x)}"))
add("dup_name", bad("g (float[N] x) => (float[N] y) {y = Relu(x) y = Sin(x)}"))
add("cycle", bad("g (float[N] x) => (float[N] y) {a = Add(x,b) b = Relu(a) y = Relu(b)}"))
add(
    "ir99",
    lambda: session(model("g (float[N] x) => (float[N] y) {y = Relu(x)}", '<ir_version: 99, opset_import: ["": 13]> ')),
)
add(
    "opset99",
    lambda: session(model("g (float[N] x) => (float[N] y) {y = Relu(x)}", '<ir_version: 8, opset_import: ["": 99]> ')),
)
add(
    "opset0",
    lambda: session(model("g (float[N] x) => (float[N] y) {y = Relu(x)}", '<ir_version: 8, opset_import: ["": 0]> ')),
)
add(
    "noopset",
    lambda: session(
        h.make_model(
            parser.parse_graph("g (float[N] x) => (float[N] y) {y = Relu(x)}"), opset_imports=[]
        ).SerializeToString()
    ),
)
add("empty_bytes", lambda: session(b""))
add("garbage", lambda: session(b"hello world, this is nothing"))
add("missing_file", lambda: session("/nope.onnx"))
add("dir_file", lambda: session("/"))
add("empty_path", lambda: session(""))
add("none_model", lambda: session(None))
add("int_model", lambda: session(3))
add("proto_model", lambda: session(ModelProto.FromString(relu)))
add("bytearray_model", lambda: session(bytearray(relu)))
add("prov_str", lambda: session(providers="CPUExecutionProvider"))
add("prov_int", lambda: session(providers=3))
add("prov_unknown", lambda: session(providers=["Nope"]).get_providers())
add("prov_cuda", lambda: session(providers=["CUDAExecutionProvider"]).get_providers())
add("prov_tuple3", lambda: session(providers=[("CPUExecutionProvider", {}, 1)]))
add("prov_tuple_bad", lambda: session(providers=[("CPUExecutionProvider", 1)]))
add("prov_num", lambda: session(providers=[1]))
add("prov_opts_len", lambda: session(providers=["CPUExecutionProvider"], provider_options=[{}, {}]))
add("prov_opts_only", lambda: session(providers=None, provider_options=[{}]).get_providers())
add("prov_opts_type", lambda: session(providers=["CPUExecutionProvider"], provider_options=[1]))
add("prov_opts_dict", lambda: session(providers=["CPUExecutionProvider"], provider_options={}))
add("prov_opts_tuple", lambda: session(providers=[("CPUExecutionProvider", {})], provider_options=[{}]))
add("sess_opts_type", lambda: session(relu, 3))
add("run_missing", lambda: session(two).run(None, {"x": X}))
add("run_extra", lambda: session().run(None, {"x": X, "zz": X}))
add("run_wrong_name", lambda: session().run(None, {"zz": X}))
add("run_dtype", lambda: session().run(None, {"x": X.astype("d")}))
add("run_rank", lambda: session().run(None, {"x": np.zeros(4, "f")}))
add("run_dim", lambda: session().run(None, {"x": np.zeros((1, 5), "f")}))
add("run_list", lambda: [r.tolist() for r in session().run(None, {"x": [[1.0, 2.0, 3.0, 4.0]]})])
add("run_none", lambda: session().run(None, {"x": None}))
add("run_str", lambda: session().run(None, {"x": "abc"}))
add("run_obj", lambda: session().run(None, {"x": object()}))
add("run_dict_feed", lambda: session().run(None, {"x": {"a": 1}}))
add("run_feed_list", lambda: session().run(None, [X]))
add("run_feed_none", lambda: session().run(None, None))
add("run_out_unknown", lambda: session().run(["nope"], {"x": X}))
add("run_out_str", lambda: session().run("y", {"x": X}))
add("run_out_int", lambda: session().run([1], {"x": X}))
add("run_out_empty", lambda: len(session().run([], {"x": X})))
add("run_out_dup", lambda: len(session().run(["y", "y"], {"x": X})))
add("run_out_input", lambda: session().run(["x"], {"x": X}))
add("run_options_type", lambda: session().run(None, {"x": X}, 3))
add("run_no_args", lambda: session().run())
add("run_str_num", lambda: session(string).run(None, {"x": np.array([1, 2])}))
add("run_str_obj", lambda: session(string).run(None, {"x": np.array(["a", 1], object)})[0].tolist())
add("run_str_obj_none", lambda: session(string).run(None, {"x": np.array(["a", None], object)})[0].tolist())
add("run_str_void", lambda: session(string).run(None, {"x": np.array([b"ab", b"c"], "V2")})[0].tolist())
add("run_str_S", lambda: session(string).run(None, {"x": np.array([b"ab", b"c"])})[0].tolist())
add("run_str_U", lambda: session(string).run(None, {"x": np.array(["ab", "c"])})[0].tolist())
add(
    "run_str_bytes_obj", lambda: session(string).run(None, {"x": np.array([b"ab", "c", 1.5, True], object)})[0].tolist()
)
add("run_nokeys", lambda: session().run(None, {}))
add(
    "run_terminate",
    lambda: (lambda r: (setattr(r, "terminate", True), session().run(None, {"x": X}, r)))(O.RunOptions()),
)
add("bind_unknown_in", lambda: session().io_binding().bind_cpu_input("nope", X))
add("bind_unknown_out", lambda: session().io_binding().bind_output("nope"))
add("bind_device", lambda: session().io_binding().bind_output("y", "nope"))
add("bind_cuda", lambda: session().io_binding().bind_output("y", "cuda"))


@case
def bind_run_nothing():
    s = session()
    b = s.io_binding()
    s.run_with_iobinding(b)


@case
def bind_no_out():
    s = session()
    b = s.io_binding()
    b.bind_cpu_input("x", X)
    s.run_with_iobinding(b)
    return len(b.get_outputs())


@case
def bind_no_in():
    s = session()
    b = s.io_binding()
    b.bind_output("y")
    s.run_with_iobinding(b)


@case
def bind_dtype():
    s = session()
    b = s.io_binding()
    b.bind_cpu_input("x", X.astype("d"))
    b.bind_output("y")
    s.run_with_iobinding(b)


@case
def bind_list():
    s = session()
    b = s.io_binding()
    b.bind_cpu_input("x", [[1.0, 2, 3, 4]])


@case
def bind_wrong_type():
    session().run_with_iobinding(3)


@case
def bind_out_shape():
    s = session()
    b = s.io_binding()
    b.bind_cpu_input("x", X)
    y = np.zeros((2, 4), "f")
    b.bind_output("y", "cpu", 0, np.float32, [2, 4], y.ctypes.data)
    s.run_with_iobinding(b)


@case
def bind_ortvalue_wrong():
    session().io_binding().bind_ortvalue_input("x", 3)


V = O.OrtValue
add("ov_list", lambda: V.ortvalue_from_numpy([1, 2]))
add("ov_none", lambda: V.ortvalue_from_numpy(None))
add("ov_device", lambda: V.ortvalue_from_numpy(X, "cuda", 0))
add("ov_device_bad", lambda: V.ortvalue_from_numpy(X, "nope", 0))
add("ov_shape_type", lambda: V.ortvalue_from_shape_and_type([1, 2], "nope"))
add("ov_shape_neg", lambda: V.ortvalue_from_shape_and_type([-1, 2], np.float32))
add("ov_init", lambda: V(3))
add("ov_update", lambda: V.ortvalue_from_numpy(X).update_inplace(np.zeros((2, 4), "f")))
add("ov_update_type", lambda: V.ortvalue_from_numpy(X).update_inplace(np.zeros((1, 4), "d")))
add("ov_update_list", lambda: V.ortvalue_from_numpy(X).update_inplace([1]))
add("ov_sparse", lambda: V.ortvalue_from_numpy(X).as_sparse_tensor())
add("ov_complex", lambda: V.ortvalue_from_numpy(np.zeros(2, complex)).data_type())
add("ov_onnx_type", lambda: V.ortvalue_from_numpy_with_onnx_type(X, 999))
add("ov_onnx_type_size", lambda: V.ortvalue_from_numpy_with_onnx_type(X, TensorProto.FLOAT16))
add("dlpack_bad", lambda: V.from_dlpack(3))
add("run_ov_numpy", lambda: session().run_with_ort_values(None, {"x": X}))
add("run_ov_missing", lambda: session().run_with_ort_values(None, {}))
add("run_ov_none_out", lambda: len(session().run_with_ort_values(None, {"x": V.ortvalue_from_numpy(X)})))
so = O.SessionOptions
add("so_attr", lambda: setattr(so(), "nope", 1))
add("so_threads_str", lambda: setattr(so(), "intra_op_num_threads", "2"))
add("so_threads_float", lambda: setattr(so(), "intra_op_num_threads", 2.5))
add("so_threads_neg", lambda: (lambda s: (setattr(s, "intra_op_num_threads", -1), session(relu, s))[0])(so()))
add("so_level_int", lambda: setattr(so(), "graph_optimization_level", 99))
add("so_mode_int", lambda: setattr(so(), "execution_mode", 0))
add("so_bool_int", lambda: setattr(so(), "enable_mem_pattern", 1))
add("so_bool_str", lambda: setattr(so(), "enable_mem_pattern", "x"))
add("so_sev", lambda: (lambda s: (setattr(s, "log_severity_level", 9), session(relu, s))[0])(so()))
add("so_cfg_int", lambda: so().add_session_config_entry("session.disable_prepacking", 1))
add("so_cfg_get", lambda: so().get_session_config_entry("nope"))
add("so_cfg_empty", lambda: so().add_session_config_entry("", ""))
add("so_cfg_long", lambda: so().add_session_config_entry("k" * 3000, "1"))
add("so_lib", lambda: so().register_custom_ops_library("/nope.so"))
add("so_init", lambda: so().add_initializer("w", 3))
add("so_init_np", lambda: so().add_initializer("w", X))
add(
    "so_init_unknown", lambda: (lambda s: (s.add_initializer("w", V.ortvalue_from_numpy(X)), session(relu, s))[0])(so())
)
add("so_ext_len", lambda: so().add_external_initializers(["a"], []))
add("so_ext_np", lambda: so().add_external_initializers(["a"], [X]))
add(
    "so_ext_unknown",
    lambda: (lambda s: (s.add_external_initializers(["a"], [V.ortvalue_from_numpy(X)]), session(relu, s))[0])(so()),
)
add("so_free", lambda: so().add_free_dimension_override_by_name("N", "x"))
add("so_provider", lambda: (lambda s: (s.add_provider("Nope", {}), session(relu, s, providers=None))[0])(so()))
add("so_kw", lambda: so(3))
add(
    "so_optpath",
    lambda: (lambda s: (setattr(s, "optimized_model_filepath", "/nope/x.onnx"), session(relu, s))[0])(so()),
)
add("so_profile_int", lambda: setattr(so(), "profile_file_prefix", 3))
ro = O.RunOptions
add("ro_attr", lambda: setattr(ro(), "nope", 1))
add("ro_sev", lambda: setattr(ro(), "log_severity_level", "1"))
add("ro_cfg", lambda: ro().get_run_config_entry("nope"))
add("ro_cfg_int", lambda: ro().add_run_config_entry("a", 1))
add("ro_adapter", lambda: ro().add_active_adapter(3))
add("seed_str", lambda: O.set_seed("a"))
add("sev_str", lambda: O.set_default_logger_severity("1"))
add("sev_9", lambda: O.set_default_logger_severity(9))
add("regep", lambda: O.register_execution_provider_library("x", "/nope.so"))
add("unregep", lambda: O.unregister_execution_provider_library("x"))
add("dev_make", lambda: O.OrtDevice.make("nope", 0))
add("dev_make2", lambda: O.OrtDevice.make("cpu", "0"))
add("mi", lambda: O.OrtMemoryInfo("Nope", O.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, O.OrtMemType.DEFAULT))
add("arena", lambda: O.OrtArenaCfg({"nope": 1}))
add("lora", lambda: O.LoraAdapter().Load("/nope"))
add("adapter", lambda: O.AdapterFormat.read_adapter("/nope"))
add("nodearg", lambda: O.NodeArg())
add("nodearg_set", lambda: setattr(session().get_inputs()[0], "name", "z"))
add("set_prov", lambda: session().set_providers(["Nope"]))
add("set_prov_str", lambda: session().set_providers("CPUExecutionProvider"))
add("prof_end", lambda: session().end_profiling())
add("graph_assign", lambda: session().get_provider_graph_assignment_info())
add("ep_dyn", lambda: session().set_ep_dynamic_options({"a": "b"}))
add("tuning", lambda: session().set_tuning_results([{}]))
add("sess_kw", lambda: session(relu, None, ["CPUExecutionProvider"], None, nope=1).get_providers())
add("sess_dis_opt", lambda: session(relu, disabled_optimizers=["NopeOpt"]).get_providers())
add("sess_dis_int", lambda: session(relu, disabled_optimizers=3).get_providers())
add("compiler_nofile", lambda: O.ModelCompiler(so(), "/nope.onnx").compile_to_bytes())
add("sparse_bad", lambda: O.SparseTensor(3))
add("async_bad", lambda: session().run_async(None, {"x": X}, None, None))
add("get_attr", lambda: session().nope)
add("create_ov", lambda: session().create_ortvalue_from_shape_and_type([1], np.float32, "nope"))
add(
    "runtime_reshape",
    lambda: session(model("g (float[N] x, int64[M] s) => (float[] y) {y = Reshape(x,s)}")).run(
        None, {"x": np.zeros(4, "f"), "s": np.array([3])}
    ),
)
add(
    "runtime_gather",
    lambda: session(model("g (float[N] x, int64[M] s) => (float[] y) {y = Gather(x,s)}")).run(
        None, {"x": np.zeros(4, "f"), "s": np.array([9])}
    ),
)
add(
    "runtime_matmul",
    lambda: session(model("g (float[N,M] x, float[K,L] s) => (float[] y) {y = MatMul(x,s)}")).run(
        None, {"x": np.zeros((2, 3), "f"), "s": np.zeros((4, 2), "f")}
    ),
)
add(
    "runtime_add",
    lambda: session(model("g (float[N] x, float[K] s) => (float[] y) {y = Add(x,s)}")).run(
        None, {"x": np.zeros(3, "f"), "s": np.zeros(2, "f")}
    ),
)
add(
    "runtime_concat",
    lambda: session(model("g (float[N,A] x, float[K,B] s) => (float[] y) {y = Concat<axis=0>(x,s)}")).run(
        None, {"x": np.zeros((2, 3), "f"), "s": np.zeros((2, 2), "f")}
    ),
)


def outcome(act):
    """Return the name of what is raised, the names of its bases, and its text; ``ok`` and the result if nothing is."""
    try:
        result = act()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is written down
        return type(error).__name__, [base.__name__ for base in type(error).__mro__], str(error)
    return "ok", [], repr(result) if isinstance(result, (list, int, str)) else type(result).__name__


with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump({name: outcome(act) for name, act in cases.items()}, file)
