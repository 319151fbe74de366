"""Convolutions and products of bytes, channels-last: sums of 32 bits in registers, four products at once.

A tile is ``rows x pixels`` outputs by a panel of output channels. The sums run through the epilogue's expression,
which takes zero points off, scales, and may end in bytes again; see ``integer_convolution_plan`` for the layout.
"""

from __future__ import annotations

from ort_core.cpu.codegen.convolutions.convolution_plan import Tiling
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.quantized.integer_convolution_plan import IntegerConvolution, tiling
from ort_core.cpu.codegen.quantized.integer_depthwise import DepthwiseTile
from ort_core.cpu.codegen.quantized.integer_driver import IntegerDriver
from ort_core.cpu.codegen.quantized.integer_tile import IntegerTile
from ort_core.cpu.codegen.quantized.matrix_tile import MatrixTile
from ort_core.cpu.codegen.quantized.matrix_tile_driver import MatrixTileDriver


def integer_convolution_kernel(
    name: str,
    spec: IntegerConvolution,
    target: Target,
    tile: type[IntegerTile] | None = None,
    cut: Tiling | None = None,
) -> list[Emitter]:
    """Return the functions of a convolution; ``name`` is the kernel, the others are its tiles.

    Args:
        name: the kernel's symbol.
        spec: what to compute.
        target: what the code is for.
        tile: what accumulates the sums, if it is not products of bytes.
        cut: how outputs are cut for that tile.
    """
    cut = cut or tiling(spec, target)
    if spec.in_tiles:
        return MatrixTileDriver(name, spec, target, MatrixTile, cut).functions()
    chosen = tile or (DepthwiseTile if spec.is_depthwise else IntegerTile)
    return IntegerDriver(name, spec, target, chosen, cut).functions()
