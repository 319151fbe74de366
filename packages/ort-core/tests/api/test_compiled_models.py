"""Compiled models: what ModelCompiler writes, sessions load without compiling, or say why they compile anew."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser
from storing_providers import EngineProvider, StoringProvider, storing_of

import ort_core
from ort_core import InferenceSession, ModelCompiler, SessionOptions
from ort_core.ep_context.container import ContextContent, context_digest, decode_context, encode_context
from ort_core.errors import EngineError, Fail, InvalidArgument, InvalidGraph, ModelRequiresCompilation, OrtError
from ort_core.stages import PlacementWarning
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import plugin_of
from ort_core.tolerances import tolerance

ALL = ort_core.GraphOptimizationLevel.ORT_ENABLE_ALL
CPU = "CPUExecutionProvider"
LIMITS = tolerance("approximate", "float32")


def network() -> bytes:
    """A small perceptron with weights above a kilobyte, a normalization and a symbolic batch."""
    generator = np.random.default_rng(5)
    w1, w2 = (generator.standard_normal(shape).astype(np.float32) for shape in ((24, 48), (48, 24)))
    bias = generator.standard_normal(48).astype(np.float32)
    graph = onnx.parser.parse_graph("""
        net (float[N, 24] x) => (float[N, 24] y, float[N, 24] z) {
            a = MatMul(x, w1)
            b = Add(a, bias)
            c = Relu(b)
            d = MatMul(c, w2)
            e = Neg(d)
            y = Softmax<axis = -1>(e)
            z = Tanh(d)
        }""")
    for name, array in (("w1", w1), ("w2", w2), ("bias", bias)):
        graph.initializer.append(numpy_helper.from_array(array, name))
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()


X = np.random.default_rng(6).standard_normal((3, 24)).astype(np.float32)


def expected() -> list[np.ndarray]:
    return onnxruntime.InferenceSession(network(), providers=[CPU]).run(None, {"x": X})


@pytest.fixture
def model_path(tmp_path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(network())
    return path


def trusting(**entries: str) -> SessionOptions:
    options = SessionOptions()
    for key, value in {"session.trust_compiled_code": "1", **entries}.items():
        options.add_session_config_entry(key.replace("__", "."), value)
    return options


def for_provider(name: str) -> SessionOptions:
    options = SessionOptions()
    options.add_provider(name, {})
    return options


def check(session: InferenceSession) -> None:
    for found, wanted in zip(session.run(None, {"x": X}), expected(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=LIMITS.relative, atol=LIMITS.absolute)


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


@pytest.mark.parametrize("embed", [False, True], ids=["beside", "embedded"])
def test_a_model_compiled_for_the_cpu_loads_without_compiling(model_path, tmp_path, monkeypatch, embed):
    out = tmp_path / "out" / "net.onnx"
    out.parent.mkdir()
    compiler = ModelCompiler(SessionOptions(), model_path, embed, graph_optimization_level=ALL)
    report = compiler.compile_to_file(out)
    assert len(report.stored) == 1
    assert not report.refused
    assert operators(out) == ["EPContext"]
    assert len(list(out.parent.iterdir())) == (1 if embed else 2)
    gc.collect()  # programs of the compiler's own session are gone, and an empty cache knows none
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path / "empty"))
    made: list[str] = []
    from ort_core.cpu.codegen.machine_code import jit

    original = jit.compile_modules

    def compile_and_note(texts, *rest, **named):
        listed = list(texts)
        made.extend(each.text for each in listed)
        return original(listed, *rest, **named)

    monkeypatch.setattr(jit, "compile_modules", compile_and_note)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = InferenceSession(out, trusting())
    check(session)
    assert session.explain().counts() == {CPU: 1}
    assert not made, "the session compiled a program that the model carries"
    session.close()
    del session
    gc.collect()
    with pytest.warns(PlacementWarning):
        check(InferenceSession(out))
    assert made, "without trust the same programs are compiled: else this test could not fail"


def test_a_partition_that_reads_nothing_stays_as_it_is_and_the_report_says_so(tmp_path):
    """onnxruntime's schema of EPContext wants an input; weights that are dequantized on their own have none."""
    model = parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        weights (float[N] x) => (float[3] y, float[N] z)
        <int8[4] levels = {1, 2, 3, 4}, float scale = {0.5}, int64[3] places = {3, 0, 1}> {
            numbers = DequantizeLinear(levels, scale)
            y = Gather(numbers, places)
            z = Exp(x)
        }""")
    compiler = ModelCompiler(SessionOptions(), model.SerializeToString(), True, graph_optimization_level=ALL)
    content = compiler.compile_to_bytes()
    assert all(node.input for node in onnx.load_from_string(content).graph.node)
    y, z = InferenceSession(content, trusting()).run(None, {"x": np.zeros(2, np.float32)})
    assert (y.tolist(), z.tolist()) == ([2.0, 0.5, 1.0], [1.0, 1.0])
    del model.graph.output[1], model.graph.node[2], model.graph.input[0]
    compiler = ModelCompiler(SessionOptions(), model.SerializeToString(), True, graph_optimization_level=ALL)
    report = compiler.compile_to_file(tmp_path / "weights.onnx")
    assert not report.stored
    assert all("an EPContext node needs an input" in reason for reason in report.refused.values())
    assert InferenceSession(tmp_path / "weights.onnx").run(["y"], {})[0].tolist() == [2.0, 0.5, 1.0]


def test_without_trust_the_graph_is_compiled_and_the_report_says_so(model_path):
    ModelCompiler(SessionOptions(), model_path, True, graph_optimization_level=ALL).compile_to_file()
    compiled = model_path.with_name("net_ctx.onnx")
    with pytest.warns(PlacementWarning, match=r"session\.trust_compiled_code"):
        session = InferenceSession(compiled)
    check(session)
    assert "EPContext" not in {node.op_type for node in session.explain().nodes}
    assert "its graph is compiled instead" in session.explain().fallbacks[0]
    options = SessionOptions()
    options.add_session_config_entry("session.disable_model_compile", "1")
    with pytest.raises(ModelRequiresCompilation, match="disable_model_compile"):
        InferenceSession(compiled, options)


def test_bytes_and_streams_hold_everything(model_path):
    compiler = ModelCompiler(SessionOptions(), network(), graph_optimization_level=ALL)
    pieces: list[bytes] = []
    compiler.compile_to_stream(pieces.append)
    for content in (compiler.compile_to_bytes(), b"".join(pieces)):
        check(InferenceSession(content, trusting()))


def test_the_caller_names_the_folder_and_the_files_of_compiled_partitions(model_path, tmp_path):
    compiler = ModelCompiler(SessionOptions(), model_path)
    for folder, name in (("", "net"), (tmp_path, ""), (tmp_path / "nowhere", "net")):
        with pytest.raises(InvalidArgument):
            compiler.set_ep_context_binary_information(folder, name)
    compiler.set_ep_context_binary_information(tmp_path, "named.onnx")
    content = compiler.compile_to_bytes()
    assert [path.name for path in tmp_path.glob("*.bin")] == ["named_cpu-0.bin"]
    (tmp_path / "compiled.onnx").write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(InferenceSession(tmp_path / "compiled.onnx", trusting()))


def test_functions_of_the_caller_keep_and_supply_contexts():
    kept: dict[str, bytes] = {}
    compiler = ModelCompiler(SessionOptions(), network(), graph_optimization_level=ALL)
    compiler.set_ep_context_data_write_func(lambda name, data: kept.update({name: data.read()}))
    content = compiler.compile_to_bytes()
    assert len(kept) == 1

    def supply(name, buffer):
        buffer.allocate(len(kept[name]))
        buffer.write(kept[name])

    options = trusting()
    options.set_ep_context_data_read_func(supply, 1 << 24)
    check(InferenceSession(content, options))
    options.set_ep_context_data_read_func(lambda name, buffer: None, 1 << 24)
    with pytest.raises(Fail, match="gave nothing"):
        InferenceSession(content, options)
    options.clear_ep_context_data_read_func()
    with pytest.raises(Fail, match="came as bytes"):
        InferenceSession(content, options)


def test_a_session_writes_its_compiled_model_when_asked(model_path, tmp_path):
    target = tmp_path / "given.onnx"
    options = SessionOptions()
    for key, value in {"enable": "1", "file_path": str(target), "node_name_prefix": "my_"}.items():
        options.add_session_config_entry(f"ep.context_{key}", value)
    check(InferenceSession(model_path, options))
    assert [node.name for node in onnx.load(target).graph.node] == ["my_cpu-0"]
    check(InferenceSession(target, trusting()))


@pytest.mark.parametrize("base", [StoringProvider, EngineProvider])
def test_each_partition_of_a_provider_is_stored_and_the_rest_stays(tmp_path, base):
    provider = storing_of(base, "MatMul", "Add")
    with installed(plugin_of(provider)):
        out = tmp_path / "out.onnx"
        options = for_provider(provider.name)
        report = ModelCompiler(options, network(), True).compile_to_file(out)
        assert len(report.stored) >= 2
        assert operators(out).count("EPContext") == len(report.stored)
        provider.compiled.clear()
        session = InferenceSession(out, trusting(), providers=[provider.name])
        check(session)
    own = [name for name in report.stored if name in provider.loaded]
    assert len(own) == len(provider.loaded) == 2
    assert not provider.compiled, "a stored partition was compiled anew"
    weights = {each.name for each in onnx.load(out).graph.initializer}
    assert bool(weights) is not base.loads_without_graph, "weights stay where the provider's bytes have none"


def test_another_sdk_is_named_and_the_graph_compiled_or_refused(tmp_path):
    for base in (StoringProvider, EngineProvider):
        old, new = (storing_of(base, "MatMul", sdk=version) for version in ("1.0", "2.0"))
        with installed(plugin_of(old)):
            content = ModelCompiler(for_provider(old.name), network()).compile_to_bytes()
        with installed(plugin_of(new)):
            if base.loads_without_graph:
                with pytest.raises(EngineError, match=r"SDK 1\.0, here is SDK 2\.0.*no graph"):
                    InferenceSession(content, trusting(), providers=[new.name])
            else:
                with pytest.warns(PlacementWarning, match=r"SDK 1\.0, here is SDK 2\.0"):
                    check(InferenceSession(content, trusting(), providers=[new.name]))
                assert new.compiled
                assert not new.loaded


def test_without_the_provider_the_graph_runs_on_another():
    provider = storing_of(StoringProvider)
    with installed(plugin_of(provider)):
        content = ModelCompiler(for_provider(provider.name), network()).compile_to_bytes()
    with pytest.warns(PlacementWarning, match="the session has no StoringExecutionProvider"):
        check(InferenceSession(content, trusting(), providers=[CPU]))


def test_bytes_that_the_provider_refuses_give_way_to_the_graph():
    def altered(stored: bytes) -> bytes:
        content = decode_context(memoryview(stored))
        return encode_context(
            ContextContent(content.provider, content.key, content.version, content.input_count, content.graph, b"no")
        )

    provider = storing_of(StoringProvider)
    with installed(plugin_of(provider)):
        content = rewritten(ModelCompiler(for_provider(provider.name), network()).compile_to_bytes(), altered)
        with pytest.warns(PlacementWarning, match="not those of this partition"):
            check(InferenceSession(content, trusting(), providers=[provider.name]))


def rewritten(model: bytes, change, *, is_stated: bool = True) -> bytes:
    """Return a compiled model whose first context is changed, its digest stated anew or left."""
    import base64

    proto = onnx.load_from_string(model)
    node = next(each for each in proto.graph.node if each.op_type == "EPContext")
    by_name = {attribute.name: attribute for attribute in node.attribute}
    changed = change(base64.b64decode(by_name["ep_cache_context"].s))
    by_name["ep_cache_context"].s = base64.b64encode(changed)
    if is_stated:
        by_name["notes"].s = f"sha256:{context_digest(changed)}".encode()
    return proto.SerializeToString()


def test_a_context_of_another_version_or_another_model_is_told(model_path, tmp_path):
    content = ModelCompiler(SessionOptions(), network(), graph_optimization_level=ALL).compile_to_bytes()

    def older(stored: bytes) -> bytes:
        was = decode_context(memoryview(stored))
        return encode_context(ContextContent(was.provider, was.key, "0.0.1", was.input_count, was.graph, was.blob))

    with pytest.warns(PlacementWarning, match=r"compiled by ort-core 0\.0\.1"):
        check(InferenceSession(rewritten(content, older), trusting()))
    with pytest.raises(EngineError, match="belongs to another model or was changed"):
        InferenceSession(rewritten(content, older, is_stated=False), trusting())


def test_files_outside_the_models_folder_are_not_read(model_path, tmp_path):
    ModelCompiler(SessionOptions(), model_path).compile_to_file(tmp_path / "c.onnx")
    proto = onnx.load(tmp_path / "c.onnx")
    attribute = next(each for each in proto.graph.node[0].attribute if each.name == "ep_cache_context")
    inner = tmp_path / "inner"
    inner.mkdir()
    attribute.s = b"../" + attribute.s
    onnx.save(proto, inner / "c.onnx")
    with pytest.raises(Fail, match="escapes model directory"):
        InferenceSession(inner / "c.onnx", trusting())


def test_types_that_contradict_the_stored_graph_are_refused():
    content = ModelCompiler(SessionOptions(), network(), graph_optimization_level=ALL).compile_to_bytes()
    proto = onnx.load_from_string(content)
    proto.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    with pytest.raises(InvalidGraph, match="its graph says"):
        InferenceSession(proto.SerializeToString(), trusting())


def test_broken_contexts_are_errors_and_never_crashes():
    """Without trust everything in a model is data: whatever its bytes are, loading works or gives an OrtError."""
    content = ModelCompiler(SessionOptions(), network()).compile_to_bytes()
    generator = np.random.default_rng(11)
    outcomes = set()
    for _ in range(60):

        def damage(stored: bytes) -> bytes:
            damaged = bytearray(stored)
            end = min(len(damaged), 4000)  # the head and the graph; behind them lies the code, which is not used
            for place in generator.integers(0, end, 3):
                damaged[place] = generator.integers(0, 256)
            return bytes(damaged[: generator.integers(end // 2, len(damaged))] if generator.random() < 0.2 else damaged)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                InferenceSession(rewritten(content, damage))
                outcomes.add("loaded")
            except OrtError:
                outcomes.add("refused")
    assert "refused" in outcomes


def test_what_an_epcontext_cannot_carry_stays_as_nodes():
    text = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 13]>
        text (string[N] s) => (string[N] y) { y = Identity(s) }""").SerializeToString()
    provider = storing_of(StoringProvider)
    with installed(plugin_of(provider)):
        compiler = ModelCompiler(for_provider(provider.name), text)
        assert [node.op_type for node in onnx.load_from_string(compiler.compile_to_bytes()).graph.node] == ["Identity"]
        strict = ort_core.OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED
        with pytest.raises(Fail, match="cannot go through an EPContext node"):
            ModelCompiler(for_provider(provider.name), text, flags=strict).compile_to_bytes()


def test_nodes_of_other_programs_are_told_apart():
    proto = onnx.load_from_string(ModelCompiler(SessionOptions(), network()).compile_to_bytes())
    for attribute in proto.graph.node[0].attribute:
        if attribute.name == "ep_cache_context":
            attribute.s = b"\xff\x00 an engine"
    with pytest.raises(InvalidGraph, match="another program has written"):
        InferenceSession(proto.SerializeToString())


def test_questions_of_compatibility_that_have_no_answer_are_refused_as_in_onnxruntime(tmp_path):
    (tmp_path / "text.onnx").write_bytes(b"this is no model")
    (tmp_path / "model.onnx").write_bytes(network())
    for library in (ort_core, onnxruntime.capi.onnxruntime_pybind11_state):
        assert library.get_compatibility_info_from_model(str(tmp_path / "model.onnx"), "AnyProvider") is None
        for path, provider in (
            ("", "AnyProvider"), (str(tmp_path / "model.onnx"), ""), (str(tmp_path / "none.onnx"), "AnyProvider"),
            (str(tmp_path / "text.onnx"), "AnyProvider"),
        ):  # fmt: skip
            with pytest.raises(RuntimeError):
                library.get_compatibility_info_from_model(path, provider)
        for content, provider in ((b"", "AnyProvider"), (network(), ""), (b"this is no model", "AnyProvider")):
            with pytest.raises(RuntimeError):
                library.get_compatibility_info_from_model_bytes(content, provider)
        with pytest.raises(RuntimeError):
            library.get_model_compatibility_for_ep_devices([], "text")
        with pytest.raises(TypeError):
            library.get_model_compatibility_for_ep_devices(library.get_ep_devices(), None)


def test_compatibility_is_told_before_loading(model_path, tmp_path):
    out = tmp_path / "c.onnx"
    ModelCompiler(SessionOptions(), model_path, True).compile_to_file(out)
    info = ort_core.get_compatibility_info_from_model(str(out), CPU)
    devices = [device for device in ort_core.get_ep_devices() if device.ep_name == CPU]
    answers = ort_core.OrtCompiledModelCompatibility
    assert ort_core.get_model_compatibility_for_ep_devices(devices, info) == answers.EP_SUPPORTED_OPTIMAL
    assert ort_core.get_model_compatibility_for_ep_devices(devices, info + "0") == answers.EP_UNSUPPORTED
    assert ort_core.get_model_compatibility_for_ep_devices(devices, "other") == answers.EP_NOT_APPLICABLE


@pytest.mark.parametrize("fails_at", ["m.onnx.partial", "m_cpu-0.bin.partial"])
def test_a_compiled_model_and_its_partitions_stay_what_they_were_when_one_of_them_cannot_be_written(
    model_path, tmp_path, monkeypatch, fails_at
):
    folder = tmp_path / "compiled"
    folder.mkdir()
    ModelCompiler(SessionOptions(), model_path).compile_to_file(folder / "m.onnx")
    for each in folder.iterdir():
        each.write_bytes(b"former")
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    assert sorted(before) == ["m.onnx", "m_cpu-0.bin"]
    write = Path.write_bytes

    def full(place: Path, content: bytes) -> int:
        if place.name.startswith(fails_at):
            raise OSError(28, "No space left on device", str(place))
        return write(place, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(Fail, match="No space left"):
        ModelCompiler(SessionOptions(), model_path).compile_to_file(folder / "m.onnx")
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == before


def storing_nothing(library):
    """Options of a library with a provider that stores no partition."""
    options = library.SessionOptions()
    if library is ort_core:
        options.add_provider("ReferenceExecutionProvider", {})
    return options


@pytest.mark.parametrize("form", ["file", "bytes", "stream"])
def test_a_function_says_where_weights_go(tmp_path, form):
    shown = {}
    for library in (onnxruntime, ort_core):
        written, weights, seen = tmp_path / f"{library.__name__}.onnx", bytearray(), []

        def place(name, value, outside, library=library, weights=weights, seen=seen):
            seen.append((name, tuple(value.shape()), outside))
            if value.tensor_size_in_bytes() < 1024:
                return None
            offset = len(weights)
            weights.extend(value.numpy().tobytes())
            return library.OrtExternalInitializerInfo(f"{library.__name__}.bin", offset, value.tensor_size_in_bytes())

        compiler = library.ModelCompiler(storing_nothing(library), network(), get_initializer_location_func=place)
        if form == "file":
            compiler.compile_to_file(str(written))
        elif form == "bytes":
            written.write_bytes(compiler.compile_to_bytes())
        else:
            parts = []
            compiler.compile_to_stream(parts.append)
            written.write_bytes(b"".join(parts))
        (tmp_path / f"{library.__name__}.bin").write_bytes(weights)
        model = onnx.load(written, load_external_data=False)
        shown[library] = (sorted(seen), sorted((each.name, each.data_location) for each in model.graph.initializer))
        for result, truth in zip(InferenceSession(written).run(None, {"x": X}), expected(), strict=True):
            np.testing.assert_allclose(result, truth, LIMITS.relative, LIMITS.absolute)
    assert shown[ort_core] == shown[onnxruntime]


def test_a_function_learns_where_weights_lie_and_may_leave_them_there(tmp_path):
    source, seen = tmp_path / "outside.onnx", {}
    onnx.save(
        onnx.ModelProto.FromString(network()), source, save_as_external_data=True, location="weights.bin",
        size_threshold=0,
    )  # fmt: skip

    def keep(name, value, outside):
        seen[name] = outside
        return outside

    compiler = ModelCompiler(storing_nothing(ort_core), source, get_initializer_location_func=keep)
    compiler.compile_to_file(tmp_path / "kept.onnx")
    entries = {
        each.name: {entry.key: entry.value for entry in each.external_data}
        for each in onnx.load(source, load_external_data=False).graph.initializer
    }
    assert {name: (info.filepath, info.file_offset, info.byte_size) for name, info in seen.items()} == {
        name: (each["location"], int(each["offset"]), int(each["length"])) for name, each in entries.items()
    }
    kept = onnx.load(tmp_path / "kept.onnx", load_external_data=False)
    assert {each.name: {e.key: e.value for e in each.external_data} for each in kept.graph.initializer} == entries
    for result, truth in zip(InferenceSession(tmp_path / "kept.onnx").run(None, {"x": X}), expected(), strict=True):
        np.testing.assert_allclose(result, truth, LIMITS.relative, LIMITS.absolute)


def test_functions_of_the_caller_that_fail_are_named():
    def fail(*_):
        raise ValueError("of the caller")

    for library in (ort_core, onnxruntime):
        options = storing_nothing(library)
        fails = library.ModelCompiler(options, network(), get_initializer_location_func=fail)
        failing_stream = library.ModelCompiler(options, network())
        wrong = library.ModelCompiler(options, network(), get_initializer_location_func=lambda *_: 3)
        refusal = Fail if library is ort_core else onnxruntime.capi.onnxruntime_pybind11_state.Fail
        with pytest.raises(refusal, match="of the caller"):
            fails.compile_to_bytes()
        with pytest.raises(refusal, match="of the caller"):
            failing_stream.compile_to_stream(fail)
        with pytest.raises(refusal):
            wrong.compile_to_bytes()
        for arguments in (
            {"input_model_path_or_bytes": ""},
            {"input_model_path_or_bytes": b""},
            {
                "input_model_path_or_bytes": network(),
                "external_initializers_file_path": "weights.bin",
                "get_initializer_location_func": fail,
            },
        ):
            with pytest.raises(ValueError, match=r"is empty|with both"):
                library.ModelCompiler(options, **arguments)


def test_a_compiled_model_needs_a_place(model_path):
    with pytest.raises(InvalidArgument, match="given as bytes"):
        ModelCompiler(SessionOptions(), network()).compile_to_file()
