"""Matrix products whose constant right side is stored in fewer bits and unpacked, a panel at a time, to float32.

A thread unpacks the part of a panel that its next tiles read into its scratch, once for each block of rows, and runs
the float32 tiles over it: what unpacking costs is shared by up to 280 rows.
"""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir.emitter import IRValue, integer
from ort_core.cpu.codegen.products.matrix_product import Blocking, ProductDriver
from ort_core.cpu.codegen.products.microkernel import TileShape


class UnpackedDriver(ProductDriver):
    """A product that unpacks panels; subclasses say how."""

    def __init__(self, name: str, shape: TileShape, blocking: Blocking, *, has_epilogue: bool) -> None:
        super().__init__(name, shape, blocking, packed=False, has_epilogue=has_epilogue)

    def _unpack(self, panel: IRValue, depth: IRValue, count: IRValue, to: IRValue) -> None:
        """Emit the writing of rows ``depth`` to ``depth + count`` of a panel to ``to``, rows of whole panels.

        ``depth`` is a multiple of 8, and so is the room behind ``to``: rows up to the next multiple may be written.
        """
        raise NotImplementedError

    def _panel(
        self, panel: IRValue, left: IRValue, depth: IRValue, count: IRValue, tiles: IRValue
    ) -> tuple[IRValue, IRValue]:
        to = self.emitter.element(self.mine, self.scratch.panel)
        self._unpack(panel, depth, count, to)
        return to, integer(self.shape.columns)
