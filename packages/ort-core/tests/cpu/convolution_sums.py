"""Convolutions of channels-last images in float64: what kernels are held against."""

from __future__ import annotations

import numpy as np

from ort_core.cpu.codegen.convolutions.convolution_plan import Convolution

Pads = tuple[int, int, int, int]


def expected(spec: Convolution, x: np.ndarray, weights: np.ndarray, pads: Pads) -> np.ndarray:
    """Return the convolution of channels-last ``x`` in float64."""
    top, left, bottom, right = pads
    padded = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    height, width = (
        (padded.shape[axis + 1] - (spec.kernel[axis] - 1) * spec.dilations[axis] - 1) // spec.strides[axis] + 1
        for axis in (0, 1)
    )
    result = np.zeros((x.shape[0], height, width, spec.out_channels))
    for group in range(spec.groups):
        inputs = slice(group * spec.group_inputs, (group + 1) * spec.group_inputs)
        outputs = slice(group * spec.group_outputs, (group + 1) * spec.group_outputs)
        for row in range(spec.kernel[0]):
            for column in range(spec.kernel[1]):
                first = row * spec.dilations[0], column * spec.dilations[1]
                rows = slice(first[0], first[0] + (height - 1) * spec.strides[0] + 1, spec.strides[0])
                columns = slice(first[1], first[1] + (width - 1) * spec.strides[1] + 1, spec.strides[1])
                taps = weights[outputs, :, row, column].astype(np.float64)
                result[..., outputs] += padded[:, rows, columns, inputs] @ taps.T
    return result
