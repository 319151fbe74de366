"""Targets that multiply and add in two instructions: no kernel calls a library for each element."""

from __future__ import annotations

import re

import pytest

from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.jit import assembly
from ort_core.cpu.codegen.machine_code.llvm_targets import target_of
from ort_core.cpu.codegen.nests.elementwise_nests import DENSE, ElementwiseNest, NestInput, elementwise_kernel
from ort_core.cpu.codegen.products.microkernel import tiles_text
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, element, erf, exp, log, tanh

SSE = target_of("x86_64-unknown-linux-gnu", "x86-64", "+sse4.2,+ssse3,+popcnt")
AVX2 = target_of("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma")
X, Y = element(0, DataType.FLOAT), element(1, DataType.FLOAT)


def calls_fma(code: str) -> bool:
    """Return whether assembly calls the C library's function, whatever the code model."""
    return re.search(r"\bfmaf?\b", code) is not None


def nest_assembly(expression: Scalar) -> str:
    nest = ElementwiseNest(1, (NestInput(X.dtype, DENSE), NestInput(Y.dtype, DENSE)), ((expression, X.dtype),))
    kernel = elementwise_kernel(nest, SSE)
    return assembly(module_text(kernel.generate(kernel.name)), SSE)


@pytest.mark.parametrize(("word", "suffix"), [("float", "ps"), ("double", "pd")])
def test_products_of_sse_call_no_library_and_those_of_avx2_fuse(word: str, suffix: str) -> None:
    code = assembly(tiles_text(SSE, word), SSE, is_vectorized=True)
    assert not calls_fma(code)
    assert f"mul{suffix}" in code
    assert f"add{suffix}" in code
    assert re.search(rf"vfmadd\w+{suffix}", assembly(tiles_text(AVX2, word), AVX2, is_vectorized=True))


@pytest.mark.parametrize("expression", [exp(X) + Y, log(X) + Y, tanh(X) + Y, erf(X) + Y])
def test_functions_of_sse_call_no_library(expression: Scalar) -> None:
    assert not calls_fma(nest_assembly(expression))
