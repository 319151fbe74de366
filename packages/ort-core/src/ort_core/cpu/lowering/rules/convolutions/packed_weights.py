"""Weights of convolutions, of images and of volumes, in the layout that their kernel reads."""

from __future__ import annotations

import numpy as np

from ort_core.cpu.codegen.convolutions.convolution_plan import Convolution, pack_weights, weights_count
from ort_core.cpu.codegen.convolutions.depthwise import is_narrow, narrow_count, pack_narrow_weights
from ort_core.cpu.codegen.products.packing import aligned_empty
from ort_core.cpu.lowering.lowering import Lowering


def packed_weights(lowering: Lowering, spec: Convolution, weights: np.ndarray, facts: str) -> np.ndarray:
    """Return the weights of a convolution in the layout that its kernel reads."""
    machine, narrow = lowering.target, is_narrow(spec, lowering.target)
    count = (narrow_count if narrow else weights_count)(spec, machine)

    def fill(out: np.ndarray) -> None:
        if narrow:
            out[...] = pack_narrow_weights(spec, weights, machine)
        else:
            pack_weights(spec, weights, machine, out)

    # the kernels load whole, aligned vectors of weights
    return lowering.weights.packed(weights, f"convolution {facts}", lambda: aligned_empty((count,)), fill)
