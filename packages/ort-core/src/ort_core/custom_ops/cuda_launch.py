"""The border around a user's CUDA source: its parameters are held against what it would be launched with.

A kernel takes bytes: a ``float`` that is given a Python float (a ``double``), or a ``const float*`` on a tensor of
float64, would compute nonsense without an error. What is written in a way that is not understood here, through macros,
templates or types of its own, is not checked.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence

import numpy as np

from ort_core.custom_ops.traceback_text import user_traceback
from ort_core.errors import InvalidArgument, RuntimeException
from ort_core.frozen import frozen
from ort_core.interruptions import raise_interruption
from ort_core.ir.types import DataType
from ort_core.kernels.device_kernel import CudaSource, Launch, LaunchRequest

_GRID, _BLOCK, _THREADS = (2**31 - 1, 65535, 65535), (1024, 1024, 64), 1024  # of every CUDA device since 2012
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_QUALIFIERS = re.compile(r"\b(const|volatile|__restrict__|__restrict|restrict|struct|__grid_constant__)\b")
_TYPES = {
    DataType.FLOAT: ("float",), DataType.DOUBLE: ("double",), DataType.BOOL: ("bool",),
    DataType.INT8: ("char", "signed char", "int8_t"), DataType.UINT8: ("unsigned char", "uint8_t"),
    DataType.INT16: ("short", "int16_t"), DataType.UINT16: ("unsigned short", "uint16_t"),
    DataType.INT32: ("int", "signed", "signed int", "int32_t"),
    DataType.UINT32: ("unsigned", "unsigned int", "uint32_t"),
    DataType.INT64: ("long long", "long long int", "int64_t"),
    DataType.UINT64: ("unsigned long long", "unsigned long long int", "uint64_t", "size_t"),
    DataType.FLOAT16: ("half", "__half"), DataType.BFLOAT16: ("__nv_bfloat16", "nv_bfloat16"),
}  # fmt: skip
_BY_TEXT = {text: dtype for dtype, texts in _TYPES.items() for text in texts}


@frozen
class CudaParameter:
    """A parameter of a kernel as it is written; ``dtype`` is ``None`` where the type is not one of the known ones."""

    text: str
    is_pointer: bool
    dtype: DataType | None


@functools.lru_cache(maxsize=256)
def cuda_parameters(source: str, entry: str) -> tuple[CudaParameter, ...] | None:
    """Return the parameters of the kernel ``entry``, ``None`` where its declaration is not understood."""
    text = _COMMENTS.sub(" ", source)
    found = re.search(rf"__global__[^;{{}}]*?\b{re.escape(entry)}\s*\(([^()]*)\)\s*\{{", text)
    if found is None:
        return None
    parts = [" ".join(part.split()) for part in found[1].split(",")]
    return () if parts in ([""], ["void"]) else tuple(_parameter(part) for part in parts)


def _parameter(text: str) -> CudaParameter:
    words = _QUALIFIERS.sub(" ", text)
    if "*" in words:
        return CudaParameter(text, True, _BY_TEXT.get(" ".join(words.split("*")[0].split())))
    return CudaParameter(text, False, _BY_TEXT.get(" ".join(words.split()[:-1])))


def check_cuda_source(kernel: CudaSource, operator: str, num_tensors: int | None) -> None:
    """Refuse a source that cannot be the kernel of an operator.

    Args:
        kernel: the source.
        operator: the operator's name, for messages.
        num_tensors: how many inputs and outputs it has, ``None`` where that differs from node to node.

    Raises:
        InvalidArgument: the source has no such entry, or too few pointers.
    """
    where = f"the CUDA kernel {kernel.entry!r} of {operator}"
    if not re.search(rf"\b{re.escape(kernel.entry)}\b", kernel.source):
        raise InvalidArgument(f"{where} is not in its source; entry is the name of a __global__ function there")
    if 'extern "C"' not in kernel.source:
        raise InvalidArgument(f'{where} is found by its plain name: write extern "C" __global__ void {kernel.entry}')
    parameters = cuda_parameters(kernel.source, kernel.entry)
    if parameters is None or num_tensors is None:
        return
    leading = parameters[:num_tensors]
    if len(leading) < num_tensors or not all(each.is_pointer or each.dtype is None for each in leading):
        raise InvalidArgument(
            f"{where} begins with a pointer for each of the operator's {num_tensors} inputs and outputs; it is "
            f"declared with ({', '.join(each.text for each in parameters)})"
        )


def plan_launch(
    kernel: CudaSource, operator: str, request: LaunchRequest, dtypes: Sequence[DataType | None]
) -> Launch | None:
    """Ask a kernel for its launch, and hold it against the kernel's parameters and the limits of CUDA.

    Args:
        kernel: the source.
        operator: the operator's name, for messages.
        request: the shapes of the dense tensors, and the attributes.
        dtypes: the element type of each input (``None`` where absent) and each output.

    Returns:
        The launch, ``None`` where it has no blocks: there is nothing to run.

    Raises:
        RuntimeException: the launch fails, has another form, is beyond a limit, or does not fit the parameters.
    """
    where = f"the CUDA kernel {kernel.entry!r} of {operator}"
    try:
        launch = kernel.launch(request)
    except Exception as error:  # the border to the user's function
        raise_interruption(error)
        text = user_traceback(error, kernel.launch)
        raise RuntimeException(f"the launch of {where} failed on {request}: {text}") from error
    if not isinstance(launch, Launch):
        raise RuntimeException(f"the launch of {where} gave a {type(launch).__name__}, expected a Launch")
    _check_size(where, "grid", launch.grid, _GRID, 0)
    _check_size(where, "block", launch.block, _BLOCK, 1)
    if math.prod(launch.block) > _THREADS:
        raise RuntimeException(f"{where} is launched with blocks {launch.block}: {_THREADS} threads is the most")
    parameters = cuda_parameters(kernel.source, kernel.entry)
    if parameters is not None:
        _check_parameters(where, parameters, dtypes, launch)
    return launch if all(launch.grid) else None


def refuse_pointers(kernel: CudaSource, dtypes: Sequence[DataType | None]) -> str | None:
    """Return why a kernel cannot be given tensors of these types, ``None`` where it can or its text does not tell.

    A provider asks it when it decides whether to take a node; ``plan_launch`` raises for the same at a launch.

    Args:
        kernel: the source.
        dtypes: the element type of each input (``None`` where absent) and each output.
    """
    parameters = cuda_parameters(kernel.source, kernel.entry)
    if parameters is None:
        return None
    wrong = _wrong_pointer(parameters, dtypes)
    if wrong is not None:
        return f"the parameter '{wrong[0].text}' of its CUDA kernel {kernel.entry!r} would be given {wrong[1]}"
    if len(parameters) < len(dtypes):
        return f"its CUDA kernel {kernel.entry!r} has {len(parameters)} parameters for {len(dtypes)} inputs and outputs"
    return None


def _check_size(where: str, name: str, size: object, limits: tuple[int, int, int], least: int) -> None:
    is_triple = isinstance(size, tuple) and len(size) == 3 and all(isinstance(n, (int, np.integer)) for n in size)
    if not is_triple or not all(least <= n <= limit for n, limit in zip(size, limits, strict=True)):  # type: ignore[call-overload]  # a triple
        raise RuntimeException(
            f"{where} is launched with {name} {size!r}: expected three integers from {least}, at most {limits}"
        )


def _check_parameters(
    where: str, parameters: Sequence[CudaParameter], dtypes: Sequence[DataType | None], launch: Launch
) -> None:
    declared, given = len(parameters), len(dtypes) + len(launch.arguments)
    if declared != given:
        raise RuntimeException(
            f"{where} has {declared} parameters and is given {given}: {len(dtypes)} pointers of inputs and outputs, "
            f"and {len(launch.arguments)} arguments of its launch"
        )
    wrong = _wrong_pointer(parameters, dtypes)
    if wrong is not None:
        parameter, what = wrong
        raise RuntimeException(f"the parameter '{parameter.text}' of {where} is given {what}")
    for parameter, value in zip(parameters[len(dtypes) :], launch.arguments, strict=True):
        found = _argument_type(value)
        if found is None or parameter.is_pointer or not _takes(parameter.dtype, found):
            raise RuntimeException(
                f"the parameter '{parameter.text}' of {where} is given {value!r}, "
                f"{'which is not a number' if found is None else f'which is passed as {found.text}'}; "
                "numpy scalars pass as their own type, a Python int as int64, a float as float64"
            )


def _wrong_pointer(
    parameters: Sequence[CudaParameter], dtypes: Sequence[DataType | None]
) -> tuple[CudaParameter, str] | None:
    """Return the first parameter that does not fit its tensor, and what it is given; ``None`` where all fit."""
    for parameter, dtype in zip(parameters, dtypes, strict=False):
        is_right = parameter.is_pointer and (dtype is None or _may_point_to(parameter.dtype, dtype))
        if not is_right and (parameter.is_pointer or parameter.dtype is not None):
            return parameter, "a null pointer" if dtype is None else f"a pointer to {dtype.text}"
    return None


def _may_point_to(declared: DataType | None, found: DataType) -> bool:
    """Bytes and halves are often read by their bits, so their size alone counts."""
    if declared is None or declared is found:
        return True
    return declared.bits == found.bits and (found.bits <= 16 or declared.is_float == found.is_float)


def _takes(declared: DataType | None, found: DataType) -> bool:
    return declared is None or (declared.bits == found.bits and declared.is_float == found.is_float)


def _argument_type(value: object) -> DataType | None:
    if isinstance(value, bool):
        return DataType.BOOL
    if isinstance(value, int):
        return DataType.INT64 if -(2**63) <= value < 2**63 else None
    if isinstance(value, float) and not isinstance(value, np.generic):
        return DataType.DOUBLE
    return DataType.from_numpy(value.dtype) if isinstance(value, (np.number, np.bool_)) else None
