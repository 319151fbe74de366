"""Libraries: how sessions get them, what they may not do to each other, and which versions of a domain they know."""

from __future__ import annotations

import pickle
import sys
import types
from pathlib import Path

import acme
import numpy as np
import onnx
import pytest
from acme import LIBRARY, OPSETS, fast_softcap, session_of, softcap, softcap_model
from numpy.typing import NDArray
from onnx.reference.op_run import OpRun

import ort_core as ort
from ort_core import stages
from ort_core.environment import Environment
from ort_core.errors import Fail, InvalidArgument, InvalidGraph, InvalidType, NoSuchFile, NotImplemented, OrtError
from ort_core.onnx_io.save import model_to_bytes
from ort_core.plugin.loops import Scalar
from ort_core.plugin.ops import OpDefinition, function_definition, reference_definition
from ort_core.providers.discovery import PluginSource
from ort_core.testing.fake_providers import environment_of
from ort_core.testing.models import model_of

X = np.array([0.0, 1.0, 50.0], np.float32)
EXPECTED = (2.0 * np.tanh(X / 2.0)).astype(np.float32)
SOURCE = """
import numpy as np
from numpy.typing import NDArray
from ort_core import custom_op

@custom_op("com.acme", "Softcap")
def softcap(x: NDArray[np.float32], *, cap: float = 30.0) -> NDArray[np.float32]:
    return np.float32(cap) * np.tanh(x / np.float32(cap))
"""


def run(session: ort.InferenceSession) -> np.ndarray:
    return session.run(None, {"x": X})[0]


def op_named(name: str, since: int = 1, add: float = 0.0, domain: str = "com.acme"):
    @ort.custom_op(domain, name, since)
    def kernel(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x + np.float32(add)

    return kernel


@pytest.mark.parametrize("source", [LIBRARY, softcap, acme, "acme"], ids=["library", "operator", "module", "name"])
def test_a_session_takes_a_library_an_operator_a_module_or_its_name(source) -> None:
    np.testing.assert_allclose(run(session_of(softcap_model(), source)), EXPECTED, rtol=1e-6)


def test_a_session_takes_a_python_file(tmp_path: Path) -> None:
    path = tmp_path / "my_ops.py"
    path.write_text(SOURCE)
    np.testing.assert_allclose(run(session_of(softcap_model(), path)), EXPECTED, rtol=1e-6)
    np.testing.assert_allclose(run(session_of(softcap_model(), str(path))), EXPECTED, rtol=1e-6)


def test_a_file_that_fails_shows_its_own_traceback(tmp_path: Path) -> None:
    path = tmp_path / "broken_ops.py"
    path.write_text("import numpy\n\nthere = numpy.nothing_like_this\n")
    before = set(sys.modules)
    with pytest.raises(Fail, match=r"Failed to load library .*broken_ops.py: AttributeError") as caught:
        session_of(softcap_model(), path)
    assert "line 3" in str(caught.value)
    assert not {name for name in set(sys.modules) - before if "broken_ops" in name}


def test_a_file_without_operators_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_text("from ort_core import custom_op\n")
    with pytest.raises(InvalidArgument, match=r"empty.py defines no operators"):
        session_of(softcap_model(), path)


@pytest.mark.parametrize("name", ["libops.so", "libops.so.1", "ops.dll", "libops.dylib"])
def test_a_shared_library_is_refused_with_what_to_do_instead(name: str) -> None:
    with pytest.raises(NotImplemented, match=r"onnxruntime's C API.*custom_op.*ctypes.*OpLibrary.*ort_custom_ops"):
        ort.SessionOptions().register_custom_ops_library(name)


def test_what_cannot_be_a_library_is_refused_at_once_or_when_it_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(NoSuchFile, match=r"nowhere\.py"):
        ort.SessionOptions().register_custom_ops_library(tmp_path / "nowhere.py")
    with pytest.raises(InvalidArgument, match="expected a Python file"):
        ort.SessionOptions().register_custom_ops_library("some/folder")
    with pytest.raises(Fail, match=r"Failed to load library no_such_module: ModuleNotFoundError"):
        session_of(softcap_model(), "no_such_module")
    with pytest.raises(InvalidType, match="given a ndarray, which is not an operator"):
        session_of(softcap_model(), np.ones(1))


@pytest.mark.parametrize("library", [42, None, [1], {}, lambda x: x], ids=lambda each: type(each).__name__)
def test_what_has_no_operators_is_refused_at_once(library: object) -> None:
    with pytest.raises(InvalidType, match=rf"given .*, a {type(library).__name__}; expected an OpLibrary, an operator"):
        ort.SessionOptions().register_custom_ops_library(library)


def test_operators_belong_to_the_session_that_was_given_them() -> None:
    session_of(softcap_model(), LIBRARY)
    with pytest.raises(ort.OrtError, match="Softcap"):
        session_of(softcap_model())


def test_two_libraries_that_claim_one_operator_are_both_named() -> None:
    other = ort.OpLibrary("ort-other", [op_named("Softcap")])
    with pytest.raises(
        Fail, match=r"com.acme::Softcap version 1 is claimed by two libraries, 'ort-acme' and 'ort-other'"
    ):
        session_of(softcap_model(), LIBRARY, other)
    session_of(softcap_model(), LIBRARY, LIBRARY)  # the same one twice says nothing new
    with pytest.raises(InvalidArgument, match=r"library 'twice' has com.acme::Op version 1 twice"):
        ort.OpLibrary("twice", [op_named("Op"), op_named("Op")])


def test_an_operator_of_the_engine_cannot_be_claimed() -> None:
    with pytest.raises(Fail, match=r"claims ai.onnx::Relu version 6, an operator of ONNX"):
        session_of(softcap_model(), op_named("Relu", 6, domain=""))


def test_the_version_that_the_model_imports_decides_which_operator_runs() -> None:
    library = ort.OpLibrary("versions", [op_named("Op", 1, 10), op_named("Op", 3, 30)])
    body = "g (float[N] x) => (float[N] y) { y = com.acme.Op (x) }"
    for version, added in ((1, 10), (2, 10), (3, 30)):
        session = session_of(body, library, opsets=f'"" : 21, "com.acme" : {version}')
        np.testing.assert_array_equal(run(session), X + added)


def test_a_model_of_a_newer_version_than_the_library_knows_is_refused_with_what_to_do() -> None:
    body, opsets = "g (float[N] x) => (float[N] y) { y = com.acme.Op (x) }", '"" : 21, "com.acme" : 4'
    operators = [op_named("Op", 1), op_named("Other", 3)]
    with pytest.raises(
        InvalidGraph, match=r"imports version 4 of domain 'com.acme'; library 'old' knows versions 1 to 3"
    ):
        session_of(body, ort.OpLibrary("old", operators), opsets=opsets)
    session_of(body, ort.OpLibrary("said", operators, domain_versions={"com.acme": 4}), opsets=opsets)


def test_an_operator_that_came_later_than_the_models_version_is_told_so() -> None:
    body = "g (float[N] x) => (float[N] y) { y = com.acme.Op (x) }"
    with pytest.raises(InvalidGraph, match=r"'late' has Op since version 2.*the model imports version 1"):
        session_of(body, ort.OpLibrary("late", [op_named("Op", 2)]))


def test_an_unknown_operator_of_a_librarys_domain_is_told_with_near_names() -> None:
    body = "g (float[N] x) => (float[N] y) { y = com.acme.SoftCap (x) }"
    with pytest.raises(InvalidGraph, match=r"no operator 'SoftCap'.*Did you mean 'Softcap'.*FastSoftcap, Softcap"):
        session_of(body, LIBRARY)


def test_a_library_may_add_to_a_domain_whose_versions_are_not_its_own() -> None:
    body = "g (float[N] x) => (float[N] y) { t = Brand_New (x) u = Neg (t) y = com.microsoft.Gelu (u) }"
    library = ort.OpLibrary(
        "more", [op_named("Brand_New", 1, 1.0, domain=""), op_named("Other", domain="com.microsoft")]
    )
    assert run(session_of(body, library, opsets='"" : 21, "com.microsoft" : 1'))[0] == pytest.approx(
        -0.158655, abs=1e-5
    )


def test_an_onnx_function_is_an_operator_and_is_compiled_with_the_rest() -> None:
    text = """<domain: "com.acme", opset_import: ["" : 21]>
    Scaled <factor: float = 3.0> (x) => (y) { c = Constant <value_float: float = @factor> () y = Mul (x, c) }"""
    proto = onnx.parser.parse_function(text)
    body = "g (float[N] x) => (float[N] y) { t = com.acme.Scaled (x) y = com.acme.Scaled <factor: float = 2.0> (t) }"
    for source in (text, proto, proto.SerializeToString(), types.SimpleNamespace(to_function_proto=lambda: proto)):
        session = session_of(body, ort.OpLibrary("functions", [source]))
        np.testing.assert_array_equal(run(session), X * 6)
    assert "Mul" in str(session.explain())
    unoptimized = session_of(
        body, ort.OpLibrary("f", [text]), graph_optimization_level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    )
    np.testing.assert_array_equal(run(unoptimized), X * 6)


def test_functions_may_call_operators_of_their_library_and_have_versions() -> None:
    calls = """<domain: "com.acme", opset_import: ["" : 21, "com.acme" : 1]>
    Twice (x) => (y) { t = com.acme.Softcap <cap: float = 2.0> (x) y = com.acme.Softcap <cap: float = 2.0> (t) }"""
    newer = calls.replace("y = com.acme.Softcap <cap: float = 2.0> (t)", "y = Neg (t)")
    library = ort.OpLibrary("f", [softcap, function_definition(calls), function_definition(newer, since_version=2)])
    body = "g (float[N] x) => (float[N] y) { y = com.acme.Twice (x) }"
    np.testing.assert_allclose(run(session_of(body, library)), 2 * np.tanh(EXPECTED / 2), rtol=1e-6)
    found = run(session_of(body, library, opsets='"" : 21, "com.acme" : 2'))
    np.testing.assert_allclose(found, -EXPECTED, rtol=1e-6)


class InvDev(OpRun):
    """As ONNX's documentation of its evaluator writes operators."""

    op_domain = "com.acme"

    def _run(self, x, shift=None):
        return (1 / (x + (1.0 if shift is None else shift)).astype(x.dtype),)


class Checked(OpRun):
    op_domain = "com.acme"
    op_schema = onnx.defs.OpSchema(
        "Checked", "com.acme", 1,
        inputs=[onnx.defs.OpSchema.FormalParameter("x", "T")],
        outputs=[onnx.defs.OpSchema.FormalParameter("y", "T")],
        type_constraints=[("T", ["tensor(float)"], "")],
        attributes=[onnx.defs.OpSchema.Attribute("to", onnx.defs.OpSchema.AttrType.STRING, "", required=True)],
    )  # fmt: skip

    def _run(self, x, to=None):
        return (x.astype(to),)


def test_a_class_written_for_onnxs_evaluator_runs_as_it_is() -> None:
    calls = "y = com.acme.InvDev (x) z = com.acme.InvDev <shift: float = 2.0> (x)"
    body = f"g (float[N] x) => (float[N] y, float[N] z) {{ {calls} }}"
    session = session_of(body, InvDev)
    y, z = session.run(None, {"x": X})
    np.testing.assert_allclose(y, 1 / (X + 1), rtol=1e-6)
    np.testing.assert_allclose(z, 1 / (X + 2), rtol=1e-6)
    evaluator = onnx.reference.ReferenceEvaluator(
        onnx.load_from_string(model_to_bytes(model_of(body, opsets=OPSETS))), new_ops=[InvDev]
    )
    np.testing.assert_array_equal(y, evaluator.run(None, {"x": X})[0])


def test_the_schema_of_such_a_class_is_checked() -> None:
    body = 'g (float[N] x) => (float[N] y) { y = com.acme.Checked <to: string = "DTYPE"> (x) }'
    np.testing.assert_array_equal(run(session_of(body.replace("DTYPE", "float32"), Checked)), X)
    with pytest.raises(ort.OrtError, match="as float64, expected float32"):
        run(session_of(body.replace("DTYPE", "float64"), Checked))
    with pytest.raises(InvalidGraph, match="Required attribute 'to' is missing"):
        session_of("g (float[N] x) => (float[N] y) { y = com.acme.Checked (x) }", Checked)


def test_such_a_class_may_have_a_version_of_its_own() -> None:
    library = ort.OpLibrary("v", [reference_definition(InvDev, since_version=2), op_named("InvDev", 1, 5.0)])
    body = "g (float[N] x) => (float[N] y) { y = com.acme.InvDev (x) }"
    np.testing.assert_array_equal(run(session_of(body, library)), X + 5)
    found = run(session_of(body, library, opsets='"" : 21, "com.acme" : 2'))
    np.testing.assert_allclose(found, 1 / (X + 1), rtol=1e-6)


def test_a_bare_definition_is_enough_for_an_operator() -> None:
    bare = OpDefinition("com.acme", "Bare", kernel=lambda x: x * 2)
    session = session_of("g (float[N] x) => (float[N] y) { y = com.acme.Bare (x) }", bare)
    np.testing.assert_array_equal(run(session), X * 2)


def plugin(name: str, *offered: object) -> PluginSource:
    module = types.ModuleType(f"ort_fake_{name}")
    module.ORT_PLUGIN_API = (2, 0)
    module.ort_custom_ops = lambda: list(offered)
    return PluginSource(name, f"ort-{name}", module)


def run_in(environment: Environment, op_type: str = "Softcap", options: ort.SessionOptions | None = None) -> np.ndarray:
    model = model_of(softcap_model(op_type), opsets=OPSETS)
    prepared = stages.prepare(model, options or ort.SessionOptions(), environment)
    return prepared.plan.run({"x": X})[0]


def test_operators_of_plugins_are_known_to_every_session_of_their_environment() -> None:
    for offered in ([LIBRARY], [softcap, fast_softcap]):
        environment = environment_of(plugin("one", *offered))
        assert environment.has_own_passes_or_operators
        np.testing.assert_allclose(run_in(environment), EXPECTED, rtol=1e-6)


def test_plugins_that_claim_one_operator_are_told_of_when_it_is_used_and_not_before() -> None:
    environment = environment_of(
        plugin("one", softcap, fast_softcap), plugin("two", ort.OpLibrary("ort-second", [op_named("Softcap")]))
    )
    np.testing.assert_allclose(run_in(environment, "FastSoftcap"), EXPECTED, rtol=1e-5)
    with pytest.raises(Fail, match=r"claimed by two libraries, 'ort-one' and 'ort-second'"):
        run_in(environment)


def test_a_plugin_whose_operators_cannot_be_had_leaves_the_others_alone(caplog) -> None:
    environment = environment_of(
        plugin("broken", 3), plugin("nul", op_named("Relu", 6, domain="")), plugin("one", softcap)
    )
    np.testing.assert_allclose(run_in(environment), EXPECTED, rtol=1e-6)
    assert "plugin broken" in caplog.text
    assert "ort-nul" in caplog.text


def test_a_sessions_library_may_not_claim_what_a_plugin_has() -> None:
    environment = environment_of(plugin("one", softcap))
    options = ort.SessionOptions()
    options.register_custom_ops_library(ort.OpLibrary("mine", [op_named("Softcap")]))
    with pytest.raises(Fail, match=r"'ort-one' and 'mine'"):
        run_in(environment, options=options)


def test_the_cache_of_optimized_models_is_left_alone_with_operators_of_users() -> None:
    environment = environment_of()
    assert not environment.has_own_passes_or_operators
    assert environment.with_libraries([LIBRARY]).has_own_passes_or_operators
    assert not environment.has_own_passes_or_operators


def test_sessions_with_operators_can_be_pickled_when_their_library_can(tmp_path: Path) -> None:
    path = tmp_path / "my_ops.py"
    path.write_text(SOURCE)
    for source in (path, acme, softcap, LIBRARY):
        again = pickle.loads(pickle.dumps(session_of(softcap_model(), source)))
        np.testing.assert_allclose(run(again), EXPECTED, rtol=1e-6)


def test_the_optimized_model_of_a_session_with_operators_can_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "optimized.onnx"
    session_of(softcap_model(), LIBRARY, optimized_model_filepath=str(path))
    options = ort.SessionOptions()
    options.register_custom_ops_library(LIBRARY)
    np.testing.assert_allclose(run(ort.InferenceSession(path, options)), EXPECTED, rtol=1e-6)


def test_two_operators_given_alone_are_told_apart_in_a_conflict() -> None:
    def doubled() -> object:
        @ort.elementwise_op("com.acme", "Op")
        def first_op(x: Scalar) -> Scalar:
            return x * 2.0

        return first_op

    def tripled() -> object:
        @ort.elementwise_op("com.acme", "Op")
        def second_op(x: Scalar) -> Scalar:
            return x * 3.0

        return second_op

    with pytest.raises(OrtError, match=r"claimed by two libraries, '.*first_op at .*' and '.*second_op at .*'"):
        session_of("g (float[N] x) => (float[N] y) { y = com.acme.Op (x) }", doubled(), tripled())
