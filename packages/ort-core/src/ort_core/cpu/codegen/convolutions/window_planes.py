"""Which planes of a volume a window over volumes reads for a plane of outputs: taps outside the volume are left out."""

from __future__ import annotations

from ort_core.cpu.codegen.convolutions.convolution_plan import ARGUMENTS, Planes
from ort_core.cpu.codegen.images.channels_last import ceil_divide, divide
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer
from ort_core.plugin import frozen


@frozen
class WindowPlanes:
    """Taps ``first`` to ``end`` of a window's planes read planes of ``volume``; tap 0 would read plane ``origin``."""

    volume: IRValue
    origin: IRValue
    first: IRValue
    end: IRValue


def window_planes(emitter: Emitter, planes: Planes, image: IRValue, arguments: IRValue) -> WindowPlanes:
    """Return what the outputs of plane ``image``, counted over all volumes, read; see ``ConvolutionArguments``."""
    volume, plane = divide(emitter, image, emitter.argument(arguments, ARGUMENTS.planes))
    origin = emitter.sub(emitter.mul(plane, planes.stride), planes.before)

    def taps_below(limit: IRValue) -> IRValue:
        reach = emitter.maximum(emitter.sub(limit, origin), 0)
        return emitter.minimum(ceil_divide(emitter, reach, planes.dilation), planes.taps)

    first, end = taps_below(integer(0)), taps_below(emitter.argument(arguments, ARGUMENTS.x_planes))
    return WindowPlanes(volume, origin, first, end)
