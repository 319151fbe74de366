"""What is loaded and what is refused: linked models with external data, new operator sets, attributes nobody knows."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as onnxruntime_errors

import ort_core as ort
from ort_core.errors import Fail, InvalidGraph

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)
X = np.ones((2, 3), np.float32)
NEWEST = {"": 17, "com.microsoft": 1, "ai.onnx.ml": 3}


def link(path: Path, target: Path | str, *, target_is_directory: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.symlink_to(target, target_is_directory=target_is_directory)
    except OSError as error:
        pytest.skip(f"this system allows no symbolic links: {error}")
    if (path.parent / target).exists() and not path.exists():
        pytest.skip("this system follows no symbolic links")  # Wine


def external_model(location: str = "model.onnx_data") -> bytes:
    """Return a model that adds a weight stored elsewhere."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value=location)
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "added", info[:1], info[1:], [weight])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return proto.SerializeToString()


def hub_cache(folder: Path, contents: dict[str, bytes], snapshot: str = "1f2e") -> Path:
    """Write files as Hugging Face's hub cache lays them out: relative links from a snapshot to blobs by digest."""
    base = folder / "models--owner--name"
    for name, content in contents.items():
        blob = base / "blobs" / hashlib.sha256(content).hexdigest()
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        path = base / "snapshots" / snapshot / name
        link(path, Path("../" * (name.count("/") + 2), "blobs", blob.name))
    return base / "snapshots" / snapshot


@pytest.mark.parametrize("name", ["model.onnx", "onnx/model.onnx"])
def test_model_of_the_hub_cache_loads_with_its_linked_data(name: str, tmp_path: Path) -> None:
    data = name.replace("model.onnx", "model.onnx_data")
    snapshot = hub_cache(tmp_path, {name: external_model(), data: WEIGHT.tobytes()})
    for module in (onnxruntime, ort):
        [found] = module.InferenceSession(str(snapshot / name), providers=["CPUExecutionProvider"]).run(None, {"x": X})
        np.testing.assert_array_equal(found, X + WEIGHT)


@pytest.mark.parametrize("beside", ["link", "target"])
def test_data_lies_beside_the_link_or_beside_its_target(beside: str, tmp_path: Path) -> None:
    model = tmp_path / "store" / "stored.onnx"
    model.parent.mkdir()
    model.write_bytes(external_model())
    link(tmp_path / "linked" / "model.onnx", model)
    folder = tmp_path / "linked" if beside == "link" else model.parent
    (folder / "model.onnx_data").write_bytes(WEIGHT.tobytes())
    [found] = ort.InferenceSession(tmp_path / "linked" / "model.onnx").run(None, {"x": X})
    np.testing.assert_array_equal(found, X + WEIGHT)


@pytest.mark.parametrize("beside", ["link", "target"])
def test_bytes_of_a_linked_model_find_its_data_where_both_folders_are_told(beside: str, tmp_path: Path) -> None:
    snapshot = hub_cache(tmp_path, {"model.onnx": external_model(), "model.onnx_data": WEIGHT.tobytes()})
    target = (snapshot / "model.onnx").resolve().parent
    if beside == "target":
        (snapshot / "model.onnx_data").unlink()
        (target / "model.onnx_data").write_bytes(WEIGHT.tobytes())
    options = ort.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(snapshot))
    if beside == "link":
        with pytest.raises(Fail, match="escapes model directory"):
            ort.InferenceSession(external_model(), options)
    options.add_session_config_entry("session.model_external_initializers_linked_folder_path", str(target))
    [found] = ort.InferenceSession(external_model(), options).run(None, {"x": X})
    np.testing.assert_array_equal(found, X + WEIGHT)
    with pytest.raises(Fail, match="escapes model directory"):
        ort.InferenceSession(external_model("../secret.bin"), options)


@pytest.mark.parametrize(
    "location", ["../secret.bin", "../../secret.bin", "a/../../../secret.bin", "out.bin", "up/secret.bin"]
)
def test_data_outside_both_folders_is_refused(location: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_bytes(WEIGHT.tobytes())
    snapshot = hub_cache(tmp_path, {"model.onnx": external_model(location)})
    (snapshot.parents[1] / "secret.bin").write_bytes(WEIGHT.tobytes())
    (snapshot.parent / "secret.bin").write_bytes(WEIGHT.tobytes())
    link(snapshot / "out.bin", secret)
    link(snapshot / "up", tmp_path, target_is_directory=True)
    with pytest.raises(Fail, match="escapes model directory"):
        ort.InferenceSession(snapshot / "model.onnx")


def test_a_link_of_the_folder_alone_opens_no_other(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "model.onnx").write_bytes(external_model("../model.onnx_data"))
    (tmp_path / "model.onnx_data").write_bytes(WEIGHT.tobytes())
    link(tmp_path / "linked", tmp_path / "real", target_is_directory=True)
    with pytest.raises(Fail, match="escapes model directory"):
        ort.InferenceSession(tmp_path / "linked" / "model.onnx")


def one_node(opset: int, domain: str = "", op_type: str = "Relu", inputs: int = 1, **attributes: object) -> bytes:
    names = [f"x{index}" for index in range(inputs)]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3] if name != "x0" else [2, 3]) for name in names]
    node = helper.make_node(op_type, names, ["y"], domain="" if op_type == "Relu" else domain, **attributes)
    graph = helper.make_graph([node], "one", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    imports = [helper.make_opsetid(domain, opset), *([helper.make_opsetid("", 17)] if domain else [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


@pytest.mark.parametrize(
    ("domain", "newest"),
    [("", 28), ("ai.onnx.ml", 5), ("com.microsoft", 1), ("ai.onnx.training", 1), ("ai.onnx.preview.training", 1)],
)
def test_newer_operator_sets_than_are_known_are_refused(domain: str, newest: int) -> None:
    ort.InferenceSession(one_node(newest, domain)).run(None, {"x0": X})
    for opset in (newest + 1, 99):
        with pytest.raises(Fail, match=rf"guarantees.*Opset {opset} is.*is till opset {newest}"):
            ort.InferenceSession(one_node(opset, domain))


def test_operator_sets_of_others_have_no_limit() -> None:
    ort.InferenceSession(one_node(99, "org.example")).run(None, {"x0": X})


@pytest.mark.parametrize("by", ["key", "variable"])
def test_newer_operator_sets_are_a_warning_where_they_are_allowed(
    by: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = ort.SessionOptions()
    if by == "key":
        options.add_session_config_entry("session.allow_released_opsets_only", "0")
    else:
        monkeypatch.setenv("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")
    with caplog.at_level(logging.WARNING, "ort_core"):
        ort.InferenceSession(one_node(99), options).run(None, {"x0": X})
    assert "Opset 99 is under development" in caplog.text


@pytest.mark.parametrize(
    ("opset", "op_type", "attributes"),
    [
        (6, "Relu", {"consumed_inputs": [0]}),
        (7, "Affine", {"alpha": 2.0, "epsion": 1}),
        (9, "LayerNormalization", {"epsion": 0.5}),
        (17, "LayerNormalization", {"epsion": 0.5}),
        (17, "SimplifiedLayerNormalization", {"epsion": 0.5}),
    ],
)
def test_unknown_attributes_of_old_operators_are_a_warning(
    opset: int, op_type: str, attributes: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    inputs = 2 if "Norm" in op_type else 1
    unknown = {"consumed_inputs", "epsion"} & attributes.keys()
    feeds = {"x0": WEIGHT, "x1": np.ones(3, np.float32)}
    feeds = {name: feeds[name] for name in list(feeds)[:inputs]}
    known = {name: value for name, value in attributes.items() if name not in unknown}
    with caplog.at_level(logging.WARNING, "ort_core"):
        [found] = ort.InferenceSession(one_node(opset, "", op_type, inputs, **attributes)).run(None, feeds)
    [expected] = ort.InferenceSession(one_node(opset, "", op_type, inputs, **known)).run(None, feeds)
    np.testing.assert_array_equal(found, expected)
    assert f"no attribute '{unknown.pop()}'" in caplog.text


@pytest.mark.parametrize(
    ("domain", "op_type", "name"),
    [
        ("", "Relu", "axis"),
        ("", "Relu", "_note"),
        ("com.microsoft", "Gelu", "axis"),
        ("com.microsoft", "QuickGelu", "axis"),
        ("ai.onnx.ml", "Normalizer", "axis"),
    ],
)
def test_unknown_attributes_of_other_operators_are_refused(domain: str, op_type: str, name: str) -> None:
    model = one_node(NEWEST[domain], domain, op_type, **{name: 1})
    for engine, refusal in ((ort, InvalidGraph), (onnxruntime, onnxruntime_errors.InvalidGraph)):
        with pytest.raises(refusal, match=f"Unrecognized attribute: {name}"):
            engine.InferenceSession(model, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(("domain", "op_type"), [("", "Relu"), ("com.microsoft", "Gelu"), ("ai.onnx.ml", "Normalizer")])
def test_names_that_begin_with_two_underscores_are_notes_of_tools(domain: str, op_type: str) -> None:
    model = one_node(NEWEST[domain], domain, op_type, __note=1)
    expected, found = (
        engine.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x0": WEIGHT})
        for engine in (onnxruntime, ort)
    )
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)


@pytest.mark.parametrize("content", [b"", b"1234567", b"123456789012"])
def test_raw_data_of_another_length_fails_as_in_onnxruntime(content: bytes) -> None:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], raw_data=content)
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "raw", [], [made], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    for engine, refusal in ((ort, Fail), (onnxruntime, onnxruntime_errors.Fail)):
        with pytest.raises(refusal):
            engine.InferenceSession(model, providers=["CPUExecutionProvider"])
