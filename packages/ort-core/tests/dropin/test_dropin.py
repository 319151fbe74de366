"""The drop-in: an unchanged program's ``import onnxruntime`` gets this project, with its leniency and its texts."""

import json
import subprocess
import sys
import textwrap

import pytest

from ort_core.sibling_modules import SiblingFinder

MODEL = """
from onnx import parser
model = parser.parse_model('<ir_version: 8, opset_import: ["": 13]> g (float[N, 4] x) => (float[N, 4] y) {y = Relu(x)}')
content = model.SerializeToString()
"""


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a program under the drop-in and returns its output."""

    def run_program(program, *arguments, as_module=False, code=0):
        path = tmp_path / "program.py"
        path.write_text(MODEL + textwrap.dedent(program), encoding="utf-8")
        target = ["-m", "program"] if as_module else [str(path)]
        command = [sys.executable, "-m", "ort_core.dropin", *target, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == code, done.stderr
        return done

    return run_program


@pytest.mark.parametrize("as_module", [False, True], ids=["file", "module"])
def test_an_unchanged_program_runs_on_this_project(run, as_module):
    program = """
        import json, sys
        import numpy as np
        import onnxruntime as ort
        from importlib.metadata import version
        session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
        found = session.run(None, {"x": -np.ones((1, 4), np.float32)})[0].tolist()
        versions = [ort.__version__, version("onnxruntime")]
        print(json.dumps([__name__, sys.argv[1:], found, *versions, type(session).__module__]))
    """
    name, arguments, found, stated, installed, module = json.loads(run(program, "a", "-b", as_module=as_module).stdout)
    assert (name, arguments, found) == ("__main__", ["a", "-b"], [[0, 0, 0, 0]])
    assert stated == installed == "1.32.0"
    assert module.startswith("ort_core.")


def test_exceptions_are_caught_by_the_names_and_matched_by_the_texts_of_onnxruntime(run):
    program = """
        import numpy as np
        import onnxruntime as ort
        from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, NoSuchFile
        session = ort.InferenceSession(content)
        for kind, act in (
            (InvalidArgument, lambda: session.run(None, {"x": np.zeros((2, 4))})),
            (NoSuchFile, lambda: ort.InferenceSession("nope.onnx")),
            (ValueError, lambda: session.run(None, {})),
            (RuntimeError, lambda: session.io_binding().bind_output("nope")),
            (RuntimeError, lambda: ort.SessionOptions().get_session_config_entry("nope")),
            (AttributeError, lambda: setattr(ort.SessionOptions(), "nope", 1)),
        ):
            try:
                act()
            except kind as error:
                print(str(error).splitlines()[0])
    """
    lines = run(program).stdout.splitlines()
    expected = [
        "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Unexpected input data type. Actual: (tensor(double))",
        "[ONNXRuntimeError] : 3 : NO_SUCHFILE : Load model from nope.onnx failed:Load model nope.onnx failed.",
        "Required inputs (['x']) are missing from input feed ([]).",
        "Failed to find NodeArg with name: nope in the def list",
        "SessionOptions does not have configuration with key: nope",
        "SessionOptions has no attribute 'nope'",
    ]
    assert len(lines) == len(expected)
    for line, start in zip(lines, expected, strict=True):
        assert line.startswith(start)


def test_providers_are_set_later_with_options_that_nobody_knows(run):
    program = """
        import onnxruntime as ort
        session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
        session.set_providers(["CPUExecutionProvider"], [{"foo": 1}])
        print(session.get_providers())
        options = ort.SessionOptions()
        for call, wrong in (
            (session.set_providers, ["NoProvider"]), (session.set_providers, "NoProvider"),
            (lambda name: options.add_provider(name, {}), "NoProvider"),
        ):
            try:
                call(wrong)
            except RuntimeError as error:
                print("Unknown Provider Type: NoProvider" in str(error))
        try:
            session.set_providers([3])
        except ValueError as error:
            print("'providers' values must be either strings or (string, dict) tuples." in str(error))
    """
    done = run(program)
    assert done.stdout.splitlines() == ["['CPUExecutionProvider']", *["True"] * 4]
    assert "CPUExecutionProvider has no options foo" in done.stderr


def test_a_callback_hears_of_failures_without_a_code(run):
    program = """
        import threading
        import numpy as np
        import onnxruntime as ort
        heard, options = threading.Event(), ort.SessionOptions()
        options.intra_op_num_threads = 2
        session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name

        def callback(results, data, error):
            print(results, data, error.startswith("Invalid rank for input"))
            heard.set()

        session.run_async([session.get_outputs()[0].name], {name: np.ones((2, 2, 2, 2, 2), np.float32)}, callback, 7)
        heard.wait(60)
    """
    assert run(program).stdout.splitlines() == ["[] 7 True"]


def test_what_onnxruntime_forgives_warns_only(run):
    program = """
        import onnxruntime as ort
        options = ort.SessionOptions()
        options.add_session_config_entry("session.not_a_key", "1")
        options.add_session_config_entry("session.disable_prepacking", "banana")
        options.add_session_config_entry("optimization.disable_specified_optimizers", "NoOther,ConstantFolding")
        providers = ["CUDAExecutionProvider", ("CPUExecutionProvider", {"foo": 1})]
        print(ort.InferenceSession(content, options, providers=providers, foo=1).get_providers())
        ort.InferenceSession(content, disabled_optimizers=["NoSuchPass", "ConstantFolding"])
        print(ort.InferenceSession(content, providers=["CudaEP"]).get_providers())
        print(ort.InferenceSession(content, providers=[]).get_providers())
    """
    done = run(program)
    assert done.stdout.splitlines() == ["['CPUExecutionProvider']"] * 3
    assert "Specified provider 'CUDAExecutionProvider' is not in available provider names." in done.stderr
    assert "Specified provider 'CudaEP' is not in available provider names." in done.stderr
    assert "has no configuration key 'session.not_a_key'" in done.stderr
    assert "CPUExecutionProvider has no options foo" in done.stderr
    assert "there are no optimizers NoSuchPass; ignored" in done.stderr
    assert "there are no optimizers NoOther; ignored" in done.stderr


def test_the_backend_interface_of_onnx_is_there(run):
    program = """
        import numpy as np
        import onnxruntime.backend as backend
        from onnxruntime.backend.backend import OnnxRuntimeBackend
        import onnx.backend.base
        assert issubclass(OnnxRuntimeBackend, onnx.backend.base.Backend)
        x = -np.ones((1, 4), np.float32)
        prepared = backend.prepare(model, "CPU", graph_optimization_level=0)
        for outputs in (prepared.run([x]), prepared.run(x), prepared.run({"x": x}), backend.run_model(content, [x])):
            assert outputs[0].tolist() == [[0, 0, 0, 0]]
        print(backend.supports_device("CPU"), backend.supports_device("CUDA"), backend.is_compatible(content))
        for refused in ("optimized_model_filepath", "enable_profiling", "profile_file_prefix"):
            try:
                backend.prepare(content, "CPU", **{refused: "x"})
                raise SystemExit(refused)
            except RuntimeError as error:
                assert f"SessionOptions attribute '{refused}' is not permitted" in str(error)
        for run in (prepared.run, lambda *given, **options: backend.run_model(prepared, *given, **options)):
            try:
                run([x], terminate=True)
                raise SystemExit("terminate")
            except RuntimeError as error:
                assert "RunOptions attribute 'terminate' is not permitted" in str(error)
        assert prepared.run([x], only_execute_path_to_fetches=True, nothing_of_that_name=1)
        print(backend.is_compatible(b"nonsense"), OnnxRuntimeBackend.is_opset_supported(model)[0])
    """
    assert run(program).stdout.split() == ["True", "False", "True", "False", "True"]


def test_the_modules_that_programs_import_by_name_have_their_names(run):
    program = """
        import onnxruntime as ort
        from onnxruntime.capi import _pybind_state as C, onnxruntime_pybind11_state as state
        from onnxruntime.capi.onnxruntime_inference_collection import IOBinding, OrtValue, Session
        from onnxruntime.capi.onnxruntime_validation import check_distro_info
        from onnxruntime.datasets import get_example
        assert C.OrtValueVector and state.InvalidGraph and ort.capi._pybind_state is C
        assert {s.domain for s in C.get_all_operator_schema()} >= {"", "ai.onnx.ml", "com.microsoft"}
        assert C.quantize_matmul_4bits and C.quantize_matmul_bnb4 and state.quantize_qdq_matmul_4bits
        assert isinstance(ort.InferenceSession(content), Session)
        assert ort.OrtValue is OrtValue and ort.IOBinding is IOBinding
        value = ort.OrtValue.ortvalue_from_numpy(__import__("numpy").zeros(2))
        assert value._ortvalue._get_c_value() is value and ort.OrtDevice.make("cpu", 0)._get_c_device()
        try:
            get_example("nothing.onnx")
        except FileNotFoundError as error:
            print(error)
        try:
            import onnxruntime.nothing
        except ModuleNotFoundError as error:
            print(error)
    """
    first, second = run(program).stdout.splitlines()
    assert "ships no example models" in first
    assert "onnxruntime.nothing" in second


def test_the_tools_of_an_installed_onnxruntime_run_on_this_project(run):
    program = """
        import json, sys, onnxruntime
        from onnxruntime.tools.onnx_model_utils import get_opsets_imported
        from onnxruntime.transformers.onnx_model import OnnxModel
        imports = get_opsets_imported(model)
        names = [name for name in sys.modules if name.startswith("onnxruntime.capi")]
        files = [getattr(sys.modules[name], "__file__", None) or "" for name in names]
        native = [file for file in files if file.endswith((".so", ".pyd"))]
        print(json.dumps([imports, len(OnnxModel(model).nodes()), onnxruntime.InferenceSession.__module__, native]))
    """
    imports, count, module, native = json.loads(run(program).stdout)
    assert (imports, count, native) == ({"ai.onnx": 13}, 1, [])
    assert module.startswith("ort_core.")


def test_the_quantization_of_an_installed_onnxruntime_runs_where_no_package_stands_for_it(run, tmp_path):
    pytest.importorskip("onnxruntime")
    program = """
        import importlib.metadata, sys
        points = importlib.metadata.entry_points
        without = lambda **asked: () if asked.get("group") == "ort.modules" else points(**asked)
        importlib.metadata.entry_points = without  # ort-quantization and its siblings
        import numpy as np, onnx, onnxruntime
        from onnxruntime.quantization import quantize_dynamic
        from onnxruntime.quantization.calibrate import CalibrationMethod
        from onnxruntime.quantization.shape_inference import quant_pre_process
        text = '<ir_version: 8, opset_import: ["": 13]> g (float[N, 2] x) => (float[N, 2] y)'
        onnx.save(parser.parse_model(text + " <float[2, 2] w = {1, 2, 3, 4}> {y = MatMul(x, w)}"), sys.argv[1])
        quantize_dynamic(sys.argv[1], sys.argv[2])
        found = onnxruntime.InferenceSession(sys.argv[2]).run(None, {"x": np.ones((1, 2), np.float32)})[0]
        print(quantize_dynamic.__module__, np.abs(found - [[4, 6]]).max() < 0.1)
    """
    done = run(program, str(tmp_path / "net.onnx"), str(tmp_path / "small.onnx"))
    assert done.stdout.split() == ["onnxruntime.quantization.quantize", "True"]


def test_packages_of_other_names_keep_their_modules_that_are_called_like_onnxruntimes(run, tmp_path):
    for module in ("quantization", "tools", "transformers"):
        folder = tmp_path / "other"
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").write_text("")
        (folder / f"{module}.py").write_text(f"mine = {module!r}")
    program = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import onnxruntime
        import other.quantization, other.tools, other.transformers
        print(other.quantization.mine, other.tools.mine, other.transformers.mine)
    """
    assert run(program).stdout.split() == ["quantization", "tools", "transformers"]


def test_types_are_told_where_neither_onnxruntime_nor_a_sibling_is_installed(run):
    program = """
        import importlib.machinery, importlib.metadata, sys, types
        points = importlib.metadata.entry_points
        without = lambda **asked: () if asked.get("group") == "ort.modules" else points(**asked)
        importlib.metadata.entry_points = without  # siblings
        import numpy as np
        found = importlib.machinery.PathFinder.find_spec
        hidden = lambda name, path=None, target=None: None if name == "onnxruntime" else found(name, path, target)
        importlib.machinery.PathFinder.find_spec = hidden
        sys.modules["torch"] = types.SimpleNamespace(float32="float32", bfloat16="bfloat16", float8_e4m3fn="float8")
        from onnxruntime import InferenceSession
        from onnxruntime.transformers.io_binding_helper import TypeHelper
        session = InferenceSession(content)
        assert TypeHelper.get_input_type(session, "x") == TypeHelper.get_output_type(session, "y") == "tensor(float)"
        assert TypeHelper.get_io_onnx_type_map(session) == {"x": 1, "y": 1}
        assert TypeHelper.ort_type_to_numpy_type("tensor(double)") is np.float64
        assert TypeHelper.ort_type_to_numpy_type("tensor(bool)") is bool
        texts = ("tensor(float)", "tensor(bfloat16)", "tensor(float8e4m3fn)")
        assert list(map(TypeHelper.ort_type_to_torch_type, texts)) == ["float32", "bfloat16", "float8"]
        for wrong in (lambda: TypeHelper.get_input_type(session, "y"), lambda: TypeHelper.ort_type_to_onnx_type("int")):
            try:
                wrong()
            except RuntimeError as error:
                print(error)
        import onnxruntime.transformers
        try:
            import onnxruntime.transformers.optimizer
        except ModuleNotFoundError as error:
            print(error)
    """
    first, second, third = run(program).stdout.splitlines()
    assert first == "input name y not found; there are x"
    assert second.startswith("int not found in map; known are tensor(float)")
    assert "pip install ort-transformers" in third


def test_the_exit_code_and_the_traceback_are_those_of_the_program(run):
    assert run("raise SystemExit(3)", code=3).stderr == ""
    assert "ZeroDivisionError" in run("1 / 0", code=1).stderr


@pytest.mark.parametrize("arguments", [[], ["-m"], ["--nope"], ["absent.py"]])
def test_a_wrong_call_shows_the_usage(arguments):
    done = subprocess.run(
        [sys.executable, "-m", "ort_core.dropin", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "usage: python -m ort_core.dropin" in done.stderr


def test_installing_after_onnxruntime_was_imported_is_refused():
    pytest.importorskip("onnxruntime")
    program = "import onnxruntime, ort_core.dropin; ort_core.dropin.install()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "install the drop-in before the first import" in done.stderr


def test_errors_show_no_code_outside_the_drop_in():
    program = "import ort_core\ntry: ort_core.InferenceSession('nope')\nexcept ort_core.OrtError as e: print(e)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Load model from nope failed")


@pytest.mark.parametrize(
    "module", ["quantization", "quantization.shape_inference", "transformers.optimizer", "tools.x"]
)
def test_a_package_that_is_not_installed_is_named(monkeypatch, module):
    monkeypatch.setattr("ort_core.sibling_modules.find_sibling", lambda name: None)
    package = module.partition(".")[0]
    with pytest.raises(ModuleNotFoundError, match=f"pip install ort-{package}") as raised:
        SiblingFinder("onnxruntime", refuses=False).refuse(f"onnxruntime.{module}")
    assert raised.value.name == f"onnxruntime.{package}"
    SiblingFinder("onnxruntime", refuses=False).refuse("onnxruntime.training")  # nobody has it: not found, as ever
