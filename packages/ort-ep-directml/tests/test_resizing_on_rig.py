"""Resize and Upsample as they are drawn, by the real DirectML, beside the reference provider.

What is drawn: sizes, scales or sizes of the result, ways to compute coordinates, rounding, and operator sets.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper
from rig_provider import run

import ort_core as ort
from ort_core.errors import ProviderUnavailable
from ort_core.tolerances import compare

WAYS = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
)  # fmt: skip
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
SCALES = (0.25, 0.5, 0.6, 0.75, 0.8, 1.0, 1.1, 1.3, 1.5, 2.0, 3.0, 3.7)


def drawn(seed: int) -> tuple[bytes, dict[str, np.ndarray]]:
    """Return a model of one Resize, and its feeds."""
    random = np.random.default_rng(seed)
    opset = int(random.choice([9, 10, 11, 13, 18, 19, 21]))
    sizes = [1, 1, *(int(size) for size in random.integers(2, 9, 2))]
    scales = np.array([1, 1, *random.choice(SCALES, 2)], np.float32)
    made = [max(1, int(np.float32(scale) * np.float32(size))) for scale, size in zip(scales, sizes, strict=True)]
    attributes: dict[str, object] = {"mode": str(random.choice(["nearest", "linear"]))}
    if opset > 10:
        attributes["coordinate_transformation_mode"] = str(random.choice(WAYS))
        if attributes["mode"] == "nearest":
            attributes["nearest_mode"] = str(random.choice(ROUNDINGS))
    inputs, held = ["x", "s"], {"s": scales}
    if opset > 10:
        by_sizes = bool(random.integers(2))
        inputs = ["x", "", "", "n"] if by_sizes else ["x", "", "s"]
        held = {"n": np.array(made)} if by_sizes else held
        if opset < 13:
            inputs[1], held = "r", held | {"r": np.zeros(0, np.float32)}
            if by_sizes:
                inputs[2], held = "e", held | {"e": np.zeros(0, np.float32)}
    graph = helper.make_graph(
        [helper.make_node("Upsample" if opset == 9 else "Resize", inputs, ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", 1, sizes)],
        [helper.make_tensor_value_info("y", 1, [None] * 4)],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return model.SerializeToString(), {"x": random.standard_normal(sizes).astype(np.float32)}


@pytest.mark.usefixtures("rig")
@pytest.mark.parametrize("seed", range(120))
def test_a_drawn_resize_gives_what_the_reference_does_or_is_refused(seed: int) -> None:
    model, feeds = drawn(seed)
    expected = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"]).run(None, feeds)[0]
    refusal, found = "", None
    try:
        found = run(model, feeds)[0]
    except ProviderUnavailable as error:
        refusal = str(error)
    if found is None:
        assert expected.size == 0 or "DirectML rounds one way" in refusal
    else:
        facts = compare(found, expected, "approximate")
        assert facts.passes, facts
