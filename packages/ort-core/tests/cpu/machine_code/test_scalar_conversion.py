"""Conversions of printed scalar expressions: out of range gives the nearest integer, NaN gives 0, for any width."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, module_text, vector_type
from ort_core.cpu.codegen.llvm_ir.scalar_printer import TYPES, ScalarPrinter
from ort_core.cpu.codegen.machine_code.jit import compile_module
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import cast, element

NUMPY = {DataType.FLOAT: np.float32, DataType.DOUBLE: np.float64, DataType.INT32: np.int32, DataType.INT64: np.int64}


@pytest.mark.parametrize("width", [1, 8])
@pytest.mark.parametrize("target", [DataType.INT32, DataType.INT64])
@pytest.mark.parametrize("source", [DataType.FLOAT, DataType.DOUBLE])
def test_conversion_to_integers_saturates(source: DataType, target: DataType, width: int) -> None:
    limits = np.iinfo(NUMPY[target])
    low, high = float(limits.min), -float(limits.min)
    x = np.array([np.nan, np.inf, -np.inf, low, high, 2 * low, -3.7, 3.7], NUMPY[source])
    wanted = [0, limits.max, limits.min, limits.min, limits.max, limits.min, -3, 3]
    y = np.zeros(x.size, NUMPY[target])
    emitter = Emitter("convert", [("ptr", "x"), ("ptr", "y")])
    for first in range(0, x.size, width):
        place = emitter.element(emitter.parameter("x"), first, TYPES[source])
        value = emitter.load(vector_type(width, TYPES[source]), place, align=4)
        printer = ScalarPrinter(emitter, width, lambda _, value=value: value)
        converted = printer.print(cast(element(0, source), target))
        emitter.store(converted, emitter.element(emitter.parameter("y"), first, TYPES[target]), align=4)
    module = compile_module(module_text([emitter]))
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(module.address("convert"))
    function(x.ctypes.data, y.ctypes.data)
    assert y.tolist() == wanted
