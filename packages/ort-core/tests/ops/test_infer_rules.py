"""Every rule against the outputs of the ONNX backend cases, with unknown and with known small inputs."""

from __future__ import annotations

import collections

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from ort_core.ir.types import DataType, OptionalType, SequenceType, SparseTensorType, TensorType, ValueType
from ort_core.kernels.reference.images.resize import resize
from ort_core.onnx_io.load import model_from_proto
from ort_core.ops.infer.all_rules import build_rules
from ort_core.ops.inference_report import NoteKind
from ort_core.ops.shape_inference import infer_types

# The declared types in the loop's body name a scalar where its sequence holds vectors.
WRONGLY_DECLARED = {"test_loop16_seq_none"}


@pytest.fixture(scope="module")
def cases() -> list[object]:
    """All node cases of the ONNX backend suite."""
    from onnx.backend.test.loader import load_model_tests

    with np.errstate(all="ignore"):
        return [case for case in load_model_tests(kind="node") if case.name not in WRONGLY_DECLARED]


def as_value(value: object) -> object:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return numpy_helper.to_optional(value)
    return list(value) if isinstance(value, tuple) else value


def problem(found: ValueType | None, value: object) -> str | None:
    """Return what contradicts the value in an inferred type."""
    if value is None or isinstance(value, (dict, onnx.SparseTensorProto)):
        return None
    if isinstance(found, OptionalType):
        found = found.element
    if isinstance(value, list):
        if not isinstance(found, SequenceType):
            return f"a list has type {found}"
        return next((p for p in (problem(found.element, item) for item in value) if p), None)
    array = np.asarray(value)
    if not isinstance(found, (TensorType, SparseTensorType)) or found.dtype != DataType.from_numpy(array.dtype):
        return f"{array.dtype} has type {found}"
    if found.shape is None:
        return None
    if len(found.shape) != array.ndim:
        return f"shape {array.shape} is inferred as {found.shape}"
    wrong = any(isinstance(d, int) and d != real for d, real in zip(found.shape, array.shape, strict=True))
    return f"shape {array.shape} is inferred as {found.shape}" if wrong else None


def is_complete(found: ValueType | None) -> bool:
    return isinstance(found, TensorType) and found.shape is not None and all(isinstance(d, int) for d in found.shape)


def stripped(case: object, known_inputs: bool) -> onnx.ModelProto:
    """Return the model of a case without output types; small integer inputs and scales become constants if asked."""
    proto = onnx.ModelProto()
    proto.CopyFrom(case.model)
    for output in proto.graph.output:
        output.ClearField("type")
    del proto.graph.value_info[:]
    if not known_inputs:
        return proto
    inputs = list(proto.graph.input)
    del proto.graph.input[:]
    for info, value in zip(inputs, case.data_sets[0][0], strict=False):
        is_small = isinstance(value, (np.ndarray, np.generic)) and value.size <= 128
        if is_small and (value.dtype.kind in "iub" or "scale" in info.name):
            proto.graph.initializer.append(numpy_helper.from_array(np.asarray(value), info.name))
        else:
            proto.graph.input.append(info)
    proto.graph.input.extend(inputs[len(case.data_sets[0][0]) :])
    return proto


@pytest.mark.parametrize("known_inputs", [False, True], ids=["unknown_contents", "known_contents"])
def test_inferred_types_agree_with_real_outputs_for_all_backend_cases(cases, schemas, rules, known_inputs):
    counts: collections.Counter[str] = collections.Counter()
    problems = []
    for case in cases:
        model = model_from_proto(stripped(case, known_inputs))
        report = infer_types(model, schemas, rules)
        problems += [f"{case.name}: {note}" for note in report.of_kind(NoteKind.TYPE, NoteKind.REFUSAL)]
        for _, outputs in case.data_sets:
            for value, real in zip(model.graph.outputs, outputs, strict=False):
                wrong = problem(value.type, as_value(real))
                if wrong:
                    problems.append(f"{case.name}: {value.name}: {wrong}")
        counts["complete" if all(is_complete(v.type) for v in model.graph.outputs) else "partial"] += 1
    assert not problems, "\n".join(problems[:20])
    least = 1700 if known_inputs else 1500  # of 1,883; sequences and data-dependent sizes are never complete
    assert counts["complete"] >= least, counts


def test_every_operator_of_onnx_has_a_rule(rules):
    import onnx.defs

    missing = [s.name for s in onnx.defs.get_all_schemas() if rules.find(s.domain, s.name, 28) is None]
    assert missing == []


def test_every_contrib_operator_with_a_known_meaning_has_a_rule(rules):
    from ort_core.ops.contrib_schemas import contrib_schemas

    missing = {s.op_type for s in contrib_schemas() if rules.find(s.domain, s.op_type, 1) is None}
    # Compiled subgraphs are opaque; the TensorRT plugins are described by nothing but their signatures.
    assert {name for name in missing if not name.endswith("_TRT")} == {"EPContext", "Snpe"}


def test_two_rules_for_one_version_are_refused():
    from ort_core.ops.infer import matrix

    with pytest.raises(ValueError, match=r"two inference rules for ai\.onnx::Mat"):
        build_rules().collect(matrix)


@pytest.mark.parametrize(("size", "scale"), [(10, 0.7), (20, 0.35), (5, 0.6), (30, 0.1), (9, 1 / 3)])
@pytest.mark.parametrize("operator", ["Resize", "Upsample"])
def test_sizes_made_by_scales_are_those_that_the_kernel_makes(operator, size, scale, infer):
    """A float32 product may be whole where the exact one lies just below, as 10 times the float32 nearest to 0.7."""
    scales = f"<float[1] s = {{{np.float32(scale)}}}>"
    inputs, opset = ("x, , s", 18) if operator == "Resize" else ("x, s", 9)
    model, report = infer(f"g (float[{size}] x) => (y) {scales} {{ y = {operator}({inputs}) }}", opset=opset)
    assert not report.notes
    made = resize(np.zeros(size, np.float32), None, np.array([scale], np.float32))
    assert model.graph.outputs[0].shape == made.shape
