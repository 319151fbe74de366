"""DeformConv as compiled, against the numpy kernel and onnxruntime: strides, groups of offsets, odd sizes, far taps."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.tolerances import compare

FLOAT = TensorProto.FLOAT


class Case:
    """A node with random operands; ``open_sizes`` leaves batch, height and width to the run."""

    def __init__(
        self, channels: int, filters: int, space: tuple[int, int], kernel: tuple[int, int], *, batch: int = 1,
        has_bias: bool = True, has_mask: bool = True, open_sizes: bool = False, seed: int = 0, **attributes: object,
    ) -> None:  # fmt: skip
        random = np.random.default_rng(seed)
        groups = int(attributes.get("offset_group", 1))  # type: ignore[call-overload]  # an int where given
        steps, wide = attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
        pads = attributes.get("pads", [0] * 4)
        count = [
            (space[k] + pads[k] + pads[k + 2] - (kernel[k] - 1) * wide[k] - 1) // steps[k] + 1  # type: ignore[index]  # lists
            for k in range(2)
        ]
        taps = kernel[0] * kernel[1] * groups
        numbers = lambda *shape: random.standard_normal(shape).astype(np.float32)  # noqa: E731 - a short name
        self.feeds = {"x": numbers(batch, channels, *space), "offset": numbers(batch, 2 * taps, *count) * 2}
        constants = {"w": numbers(filters, channels, *kernel)}
        if has_bias:
            constants["b"] = numbers(filters)
        if has_mask:
            self.feeds["mask"] = numbers(batch, taps, *count)
        names = ["x", "w", "offset", "b" if has_bias else "", "mask" if has_mask else ""]
        node = helper.make_node("DeformConv", names, ["y"], **attributes)
        inputs = [
            helper.make_tensor_value_info(
                name, FLOAT, [f"{name}0", array.shape[1], f"{name}2", f"{name}3"] if open_sizes else array.shape
            )
            for name, array in self.feeds.items()
        ]
        graph = helper.make_graph(
            [node], "deformed", inputs, [helper.make_tensor_value_info("y", FLOAT, None)],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
        self.model = bytes(model.SerializeToString())

    def check(self, *, theirs: bool = True) -> None:
        """Compare the compiled results with the kernel's, and with onnxruntime's where they are defined."""
        session = ort.InferenceSession(self.model, providers=["CPUExecutionProvider"])
        assert not session._loaded.prepared.plan.steps[0].step.compiled.refusals, "not compiled"
        found = session.run(None, self.feeds)[0]
        by_numpy = ort.InferenceSession(self.model, providers=["ReferenceExecutionProvider"]).run(None, self.feeds)[0]
        assert compare(found, by_numpy, "approximate").passes
        if theirs:
            other = onnxruntime.InferenceSession(self.model, providers=["CPUExecutionProvider"])
            assert compare(found, other.run(None, self.feeds)[0], "approximate").passes


@pytest.mark.parametrize("channels", [1, 4, 17, 34])
@pytest.mark.parametrize(
    "attributes",
    [
        {}, {"pads": [1, 1, 1, 1]}, {"strides": [2, 1], "pads": [1, 0, 2, 1]}, {"dilations": [2, 3], "pads": [2] * 4},
        {"offset_group": 2, "pads": [1] * 4},
    ],
    ids=str,
)  # fmt: skip
def test_windows_of_every_kind(channels: int, attributes: dict[str, object]) -> None:
    if channels % int(attributes.get("offset_group", 1)):  # type: ignore[call-overload]  # an int where given
        channels *= 2
    for number, kernel in enumerate([(3, 3), (1, 2)]):
        Case(
            channels, 3 + 14 * number, (7, 9), kernel, batch=2, has_bias=not number, has_mask=bool(number),
            open_sizes=bool(number), seed=channels, **attributes,
        ).check()  # fmt: skip


def test_offsets_that_are_far_away_or_no_numbers_read_nothing() -> None:
    case = Case(5, 4, (6, 5), (3, 3), pads=[1] * 4)
    offset = case.feeds["offset"].reshape(-1)
    offset[::7], offset[1::11] = np.nan, np.inf
    offset[2::13], offset[3::17], offset[4::19] = -np.inf, 1e30, -1e9
    case.check(theirs=False)


def test_what_is_infinite_reaches_no_window_beside_it() -> None:
    case = Case(5, 4, (6, 5), (3, 3), pads=[1] * 4, seed=3)
    case.feeds["x"][:, 4, 3, 0] = -np.inf  # at a border: pixels outside are read in the place of the first column
    case.check()


def test_sizes_that_do_not_fit_are_refused_as_by_the_kernel() -> None:
    case = Case(2, 2, (5, 5), (3, 3), open_sizes=True)
    session = ort.InferenceSession(case.model, providers=["CPUExecutionProvider"])
    session.run(None, case.feeds)
    with pytest.raises(ort.OrtError, match="offset has shape"):
        session.run(None, {**case.feeds, "offset": case.feeds["offset"][:, :, :2]})
