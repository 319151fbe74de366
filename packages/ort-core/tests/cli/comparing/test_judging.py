"""`ort run FOLDER`: every test data set is run and judged, whatever kind of value it holds; the exit code says it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from google.protobuf.message import Message
from onnx import numpy_helper, parser

X = np.arange(4, dtype=np.float32)
TWO = '<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y, float[N] z) { y = Neg(x) z = Exp(x) }'
Values = Sequence[tuple[str, np.ndarray]]


def write_model(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    onnx.save(parser.parse_model(text), folder / "model.onnx")
    return folder


def write_set(folder: Path, number: int, inputs: Values, outputs: Values) -> Path:
    where = folder / f"test_data_set_{number}"
    where.mkdir()
    for kind, values in (("input", inputs), ("output", outputs)):
        for index, (name, array) in enumerate(values):
            (where / f"{kind}_{index}.pb").write_bytes(numpy_helper.from_array(array, name).SerializeToString())
    return where


@pytest.fixture
def folder(tmp_path):
    return write_model(tmp_path / "model", TWO)


def test_every_set_that_is_right_passes_and_the_command_ends_well(ort, folder):
    for number in (0, 2, 10):
        write_set(folder, number, [("", X * number)], [("", -X * number), ("", np.exp(X * number))])
    result = ort("run", folder)
    assert result.code == 0, result.err
    assert "3 of 3 data sets pass within the tolerance 'approximate' on CPUExecutionProvider" in result.out
    places = [result.out.index(f"test_data_set_{number} ") for number in (0, 2, 10)]
    assert places == sorted(places)


def test_the_first_difference_is_told_with_its_place_and_both_numbers(ort, folder):
    wrong = -X
    wrong[2] -= 1
    write_set(folder, 0, [("", X)], [("", -X), ("", np.exp(X))])
    write_set(folder, 1, [("", X)], [("", wrong), ("", X)])
    result = ort("run", folder)
    assert result.code == 1
    said = " ".join(result.out.split())
    assert "1 of 2 data sets pass" in said
    assert "first difference: test_data_set_1: output 'y': 1 of 4 elements outside approximate" in said
    assert "at [2]: -2.0 instead of -3.0" in said


def test_limits_are_the_tables_or_those_that_are_given(ort, folder):
    write_set(folder, 0, [("", X)], [("", -X), ("", np.exp(X) + np.float32(1e-3))])
    assert ort("run", folder).code == 1
    assert ort("run", folder, "--atol", "0.01").code == 0
    assert ort("run", folder, "--rtol", "0.01").code == 0
    assert ort("run", folder, "--fetch", "y").code == 0
    write_set(folder, 1, [("", X)], [("", -X), ("", np.nextafter(np.exp(X), np.float32(99)))])
    last = [each["passes"] for each in ort("run", folder, "--json").data["data_sets"]]
    assert last == [False, True]
    exact = [each["passes"] for each in ort("run", folder, "--json", "--tolerance", "exact").data["data_sets"]]
    assert exact == [False, False]


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        ([("", -X.astype(np.float64))], "output 'y': found and expected are float32[4] and float64[4]"),
        ([("", -X[:3])], "output 'y': found and expected are float32[4] and float32[3]"),
        ([("", -X), ("", np.exp(X)), ("", X)], "output_2.pb' belongs to no output of the model: y, z"),
    ],
)
def test_another_type_shape_or_count_is_a_difference(ort, folder, outputs, said):
    write_set(folder, 0, [("", X)], outputs)
    result = ort("run", folder)
    assert result.code == 1
    assert said in " ".join(result.out.split())


def test_a_set_that_cannot_be_read_or_run_does_not_hide_the_others(ort, folder):
    write_set(folder, 0, [("", X)], [("", -X)])
    (write_set(folder, 1, [("", X)], []) / "output_0.pb").write_bytes(b"\xff\xff no proto")
    write_set(folder, 2, [("", X.astype(np.int64))], [("", -X)])
    result = ort("run", folder, "--json")
    assert result.code == 1
    assert [each["passes"] for each in result.data["data_sets"]] == [True, False, False]
    assert "output_0.pb" in result.data["data_sets"][1]["error"]
    assert result.data["data_sets"][2]["error"]


def test_values_belong_to_the_names_that_files_state(ort, folder):
    write_set(folder, 0, [("x", X)], [("z", np.exp(X)), ("y", -X)])
    assert ort("run", folder).code == 0


def test_outputs_without_an_expected_value_are_named(ort, folder):
    write_set(folder, 0, [("", X)], [("", -X)])
    result = ort("run", folder, "--json")
    assert result.code == 0
    assert result.data["data_sets"][0]["not_judged"] == ["z"]


def test_weights_that_an_old_model_lists_as_inputs_are_not_counted(ort, tmp_path):
    model = parser.parse_model(
        '<ir_version: 3, opset_import: ["" : 9]> g (float[2] w, float[2] x) => (float[2] y) { y = Mul(w, x) }'
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array([2, 3], np.float32), "w"))
    (tmp_path / "m").mkdir()
    onnx.save(model, tmp_path / "m/model.onnx")
    write_set(tmp_path / "m", 0, [("", X[:2])], [("", X[:2] * [2, 3])])
    assert ort("run", tmp_path / "m").code == 1, "float64 was expected"
    write_set(tmp_path / "m", 1, [("", X[:2])], [("", (X[:2] * [2, 3]).astype(np.float32))])
    assert [each["passes"] for each in ort("run", tmp_path / "m", "--json").data["data_sets"]] == [False, True]


def test_a_folder_without_sets_and_inputs_that_are_given_run_as_before(ort, folder):
    assert "random" in ort("run", folder).out
    write_set(folder, 0, [("", X)], [("", X)])
    assert "random" in ort("run", folder / "model.onnx").out
    result = ort("run", folder, "-i", folder / "test_data_set_0")
    assert result.code == 0
    assert "from a file" in result.out


TENSOR = onnx.helper.make_tensor_type_proto
SEQUENCE, OPTIONAL = onnx.helper.make_sequence_type_proto, onnx.helper.make_optional_type_proto
KINDS = {
    "strings": (TENSOR(onnx.TensorProto.STRING, [2]), np.array(["häuser", ""], object)),
    "booleans": (TENSOR(onnx.TensorProto.BOOL, [2]), np.array([True, False])),
    "unsigned": (TENSOR(onnx.TensorProto.UINT64, [1]), np.array([2**64 - 1], np.uint64)),
    "scalar": (TENSOR(onnx.TensorProto.DOUBLE, []), np.array(0.1)),
    "nothing": (TENSOR(onnx.TensorProto.FLOAT, [0, 3]), np.zeros((0, 3), np.float32)),
    "not a number": (TENSOR(onnx.TensorProto.FLOAT16, [2]), np.array([np.nan, np.inf], np.float16)),
    "bfloat16": (TENSOR(onnx.TensorProto.BFLOAT16, [2]), np.array([1.5, -2], ml_dtypes.bfloat16)),
    "float8": (TENSOR(onnx.TensorProto.FLOAT8E4M3FN, [2]), np.array([1.5, -2], ml_dtypes.float8_e4m3fn)),
    "int4": (TENSOR(onnx.TensorProto.INT4, [3]), np.array([7, -8, 1], ml_dtypes.int4)),
    "sequence": (SEQUENCE(TENSOR(onnx.TensorProto.FLOAT, None)), [X, X[:0], X.reshape(2, 2)]),
    "empty sequence": (SEQUENCE(TENSOR(onnx.TensorProto.FLOAT, None)), []),
    "optional": (OPTIONAL(TENSOR(onnx.TensorProto.FLOAT, None)), X),
    "absent": (OPTIONAL(TENSOR(onnx.TensorProto.FLOAT, None)), None),
    "optional sequence": (OPTIONAL(SEQUENCE(TENSOR(onnx.TensorProto.INT64, None))), [np.arange(3)]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_value_is_read_and_judged(ort, tmp_path, kind):
    declared, value = KINDS[kind]
    write_identity(tmp_path / "m", declared, value, value)
    result = ort("run", tmp_path / "m", "--json")
    assert result.code == 0, result.out + result.err
    (judged,) = result.data["data_sets"][0]["outputs"]
    assert judged["is_equal"]


@pytest.mark.parametrize(
    ("kind", "other", "said"),
    [
        ("strings", np.array(["häuser", "x"], object), "1 of 2 elements outside approximate"),
        ("unsigned", np.array([5], np.uint64), "18446744073709551615 instead of 5"),
        ("not a number", np.array([np.nan, -np.inf], np.float16), "at [1]: inf instead of -inf"),
        ("bfloat16", np.array([1.5, 3], ml_dtypes.bfloat16), "at [1]: -2.0 instead of 3.0"),
        ("sequence", [X, X[:0]], "3 elements and 2"),
        ("sequence", [X, X[:0], X.reshape(2, 2) + 1], "element 2: 4 of 4 elements outside"),
        ("optional", None, "ndarray and NoneType"),
        ("absent", X, "NoneType and ndarray"),
    ],
)
def test_a_difference_is_found_in_every_kind_of_value(ort, tmp_path, kind, other, said):
    declared, value = KINDS[kind]
    write_identity(tmp_path / "m", declared, value, other)
    result = ort("run", tmp_path / "m")
    assert result.code == 1
    assert said in " ".join(result.out.split())


def write_identity(folder: Path, declared: onnx.TypeProto, value: object, expected: object) -> None:
    values = [onnx.helper.make_value_info(name, declared) for name in ("x", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", values[:1], values[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 24)], ir_version=11)
    (folder / "test_data_set_0").mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    for name, each in (("input_0", value), ("output_0", expected)):
        content = _proto(each, declared).SerializeToString()
        (folder / "test_data_set_0" / f"{name}.pb").write_bytes(content)


def _proto(value: object, declared: onnx.TypeProto) -> Message:
    """Return the proto of a value as ONNX's own data sets are written."""
    kind = declared.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.from_list(list(value), "", onnx.SequenceProto.TENSOR)
    if kind == "optional_type":
        return numpy_helper.from_optional(value, "", None if value is not None else onnx.OptionalProto.TENSOR)
    return numpy_helper.from_array(value, "")
