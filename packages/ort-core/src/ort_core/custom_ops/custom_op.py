"""``@custom_op``: a plain function becomes an operator; its further kernels are attached to it.

    T = TypeVar("T", np.float32, np.float64)

    @custom_op("com.acme", "Softcap")
    def softcap(x: NDArray[T], *, cap: float = 30.0) -> NDArray[T]:
        return (cap * np.tanh(x / cap)).astype(x.dtype)

    @softcap.loops
    def _(x: Scalar, *, cap: float = 30.0) -> Scalar:
        return tanh(x / cap) * cap

Nothing is registered by this: an ``OpLibrary`` holds operators, and a session is given libraries. A ``CustomOp`` is
still called like its function.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ort_core.custom_ops.border import GuardedKernel, StateFactory, guarded
from ort_core.custom_ops.compiled_kernel import CArguments, CFunction, ctypes_kernel, positional_kernel
from ort_core.custom_ops.cuda_launch import check_cuda_source
from ort_core.custom_ops.definition import OpDefinition
from ort_core.custom_ops.device_function import device_kernel
from ort_core.custom_ops.loop_kernel import (
    LoopFunction,
    check_row_schema,
    check_schema,
    element_meaning,
    row_meaning,
    row_shapes,
)
from ort_core.custom_ops.op_signature import OpSignature, read_signature
from ort_core.custom_ops.shape_rule import ShapeFunction, TensorShape, broadcast_shapes, shape_rule
from ort_core.custom_ops.traceback_text import place_of
from ort_core.errors import InvalidArgument
from ort_core.kernels.device_kernel import CUDA, CudaSource, DeviceKernel, Launch, LaunchRequest
from ort_core.kernels.kernel import KernelFunction
from ort_core.loops.rows import OpMeaning, RowMeaning
from ort_core.ops.schema import OpSchema, ParameterOption

_F = TypeVar("_F")
_OP_TYPE = re.compile(r"[A-Za-z_]\w*")


class CustomOp:
    """One version of an operator, written in Python. Made by ``custom_op`` and ``elementwise_op``.

    Args:
        function: the numpy kernel; its annotations are the operator's signature (see ``op_signature``).
        domain: the operator's domain, such as ``"com.acme"``.
        op_type: its name in models.
        since_version: the version of the domain from which it holds.
        is_deterministic: whether equal inputs give equal outputs; others are neither folded nor merged.
        state: makes the state of a node, once for each session; handed to a parameter ``state`` of the kernel. Its
            own parameters are attributes of the node, by name.
        is_reentrant: whether several threads may be in the kernel at once at one node. Otherwise they take turns.
    """

    def __init__(
        self,
        function: KernelFunction,
        domain: str,
        op_type: str,
        since_version: int = 1,
        *,
        is_deterministic: bool = True,
        state: StateFactory | None = None,
        is_reentrant: bool = True,
    ) -> None:
        _check_names(domain, op_type, since_version, function)
        domain = "" if domain == "ai.onnx" else domain  # two names of one domain
        self.function = function
        self.signature: OpSignature = read_signature(function)
        if ("state" in self.signature.handed_in) != (state is not None):
            raise InvalidArgument(
                f"{place_of(function)}: a kernel with state has a keyword-only parameter 'state' and "
                "custom_op(..., state=make_state); one of the two is missing"
            )
        self.schema = OpSchema(
            op_type, domain, since_version, self.signature.inputs, self.signature.outputs,
            dict(self.signature.attributes), dict(self.signature.type_constraints),
            is_deterministic=is_deterministic and state is None, doc=function.__doc__ or "",
        )  # fmt: skip
        self.make_state, self.is_reentrant = state, is_reentrant
        self.shape_function: ShapeFunction | None = None
        self.loop_function: LoopFunction | None = None
        self.loops_over_rows = False
        self.compiled: KernelFunction | None = None
        self.device_kernels: dict[str, DeviceKernel] = {}
        self.written_as: Callable[..., Any] = (
            function  # Any: as the user has it; a formula, where function is made of it
        )
        functools.update_wrapper(self, function)

    def __call__(self, *inputs: Any, **attributes: Any) -> Any:  # Any: as the function has it
        """Call the numpy kernel as the plain function that it is; nothing is checked."""
        return self.function(*inputs, **attributes)

    def __reduce__(self) -> str:
        return self.function.__qualname__  # pickled like its function: by name

    def __repr__(self) -> str:
        return f"<operator {self.qualified_name}: {place_of(self.written_as)}>"

    @property
    def qualified_name(self) -> str:
        """The operator's name for messages."""
        return f"{self.schema.domain}::{self.schema.op_type} version {self.schema.since_version}"

    def shape(self, function: _F) -> _F:
        """Attach the shape function (see ``shape_rule``); a decorator."""
        self._attach("shape_function", function, "shape function")
        return function

    def loops(self, function: _F) -> _F:
        """Attach the loop kernel (see ``loop_kernel``); a decorator. Without a shape function inputs broadcast."""
        check_schema(self.schema)
        self._attach("loop_function", function, "loop kernel")
        return function

    def rows(self, function: _F) -> _F:
        """Attach formulas over rows (see ``row_op``), one for each output; a decorator."""
        check_row_schema(self.schema)
        self._attach("loop_function", function, "loop kernel")
        self.loops_over_rows = True
        return function

    def cuda(self, kernel: _F) -> _F:
        """Attach the kernel for CUDA devices: a ``CudaSource``, or a function over CuPy arrays (then a decorator)."""
        if CUDA in self.device_kernels:
            raise InvalidArgument(f"{self!r} has a CUDA kernel already")
        if isinstance(kernel, CudaSource):
            check_cuda_source(kernel, self.qualified_name, self._num_tensors())
        elif not callable(kernel):
            raise InvalidArgument(f"{self!r}: a CUDA kernel is a CudaSource or a function, found {kernel!r}")
        self.device_kernels[CUDA] = kernel  # type: ignore[assignment]  # a decorator returns what it is given
        return kernel

    def ctypes(self, function: CFunction, arguments: CArguments | None = None) -> None:
        """Attach a function of a C library, which then runs in place of the numpy kernel (see ``compiled_kernel``).

        Args:
            function: with its ``argtypes`` set, or taking pointers and 64-bit counts only.
            arguments: gives what is passed behind the pointers; by default how many elements output 0 has.
        """
        kernel = ctypes_kernel(function, self.schema, self._shape_or_broadcast, self.signature.defaults, arguments)
        self._attach("compiled", kernel, "compiled kernel")
        self._compiled_takes_context = True

    def numba(self, function: _F) -> _F:
        """Attach a function of numba, which then runs in place of the numpy kernel; a decorator.

        It is called with the inputs and then every attribute in order, by position.
        """
        defaults = {name: self.signature.defaults.get(name) for name in self.signature.attributes}
        self._attach("compiled", positional_kernel(function, defaults), "compiled kernel")  # type: ignore[arg-type]  # a decorator
        self._compiled_takes_context = False
        return function

    def convert(self, attributes: Mapping[str, object]) -> dict[str, object]:
        """Return attributes as the functions take them: bool where ONNX has integers."""
        booleans = self.signature.booleans
        return {name: bool(value) if name in booleans else value for name, value in attributes.items()}

    def definition(self) -> OpDefinition:
        """Return what the engine is told: a snapshot of what is attached by now."""
        shape = self._shape_or_none()
        host = GuardedKernel(
            self.function, self.schema, self.convert, self.signature.handed_in, shape, self.make_state,
            self.is_reentrant,
        )  # fmt: skip
        kernel = host
        if self.compiled is not None:
            taken = frozenset({"ctx"}) if self._compiled_takes_context else frozenset()
            kernel = replace(host, function=self.compiled, handed_in=taken, make_state=None, lends_inputs=False)
        on_devices = {
            device: self._told(each)
            if isinstance(each, CudaSource)
            else device_kernel(each, host, self.signature.defaults)
            for device, each in self.device_kernels.items()
        }
        return OpDefinition(
            self.schema.domain, self.schema.op_type, self.schema.since_version, self.schema, guarded(kernel),
            None if shape is None else shape_rule(shape, self.schema, self.convert, self.qualified_name),
            self._meaning(), on_devices, origin=place_of(self.written_as),
        )  # fmt: skip

    def _told(self, kernel: CudaSource) -> CudaSource:
        """Return a source whose launch is given attributes as kernels are: defaults too, bool where it is meant."""

        @functools.wraps(kernel.launch)
        def launch(request: LaunchRequest) -> Launch:
            attributes = self.convert({**self.signature.defaults, **request.attributes})
            return kernel.launch(replace(request, attributes=attributes))

        return replace(kernel, launch=launch)

    def _num_tensors(self) -> int | None:
        parameters = (*self.schema.inputs, *self.schema.outputs)
        if any(each.option is ParameterOption.VARIADIC for each in parameters):
            return None
        return len(parameters)

    def _meaning(self) -> OpMeaning | None:
        if self.loop_function is None:
            return None
        if self.loops_over_rows:
            return row_meaning(self.loop_function, self.qualified_name, self.convert, len(self.schema.outputs))
        return element_meaning(self.loop_function, self.qualified_name, self.convert)

    def _shape_or_none(self) -> ShapeFunction | None:
        if self.shape_function is not None or self.loop_function is None:
            return self.shape_function
        meaning = self._meaning()
        return row_shapes(meaning) if isinstance(meaning, RowMeaning) else _broadcast_of_inputs

    def _shape_or_broadcast(self) -> ShapeFunction:
        found = self._shape_or_none()
        if found is None:
            raise InvalidArgument(f"{self!r} has a C function and no shape function: how large is its output?")
        return found

    def _attach(self, attribute: str, function: object, what: str) -> None:
        if getattr(self, attribute) is not None:
            raise InvalidArgument(f"{self!r} has a {what} already")
        setattr(self, attribute, function)


def custom_op(
    domain: str,
    op_type: str,
    since_version: int = 1,
    *,
    is_deterministic: bool = True,
    state: StateFactory | None = None,
    is_reentrant: bool = True,
) -> Callable[[KernelFunction], CustomOp]:
    """Return a decorator that makes an operator of its numpy kernel; the arguments are those of ``CustomOp``."""

    def decorate(function: KernelFunction) -> CustomOp:
        return CustomOp(
            function, domain, op_type, since_version,
            is_deterministic=is_deterministic, state=state, is_reentrant=is_reentrant,
        )  # fmt: skip

    return decorate


def _broadcast_of_inputs(*inputs: TensorShape | None, **attributes: object) -> tuple[object, ...]:
    return broadcast_shapes(*inputs)


def _check_names(domain: str, op_type: str, since_version: int, function: object) -> None:
    what = place_of(function) if callable(function) else repr(function)
    if not callable(function):
        raise InvalidArgument(f"custom_op decorates a function, found {what}")
    if not isinstance(domain, str) or not isinstance(op_type, str) or not _OP_TYPE.fullmatch(op_type):
        raise InvalidArgument(
            f"{what}: an operator has a domain such as 'com.acme' and a name of letters and digits, found "
            f"{domain!r} and {op_type!r}"
        )
    if isinstance(since_version, bool) or not isinstance(since_version, int) or since_version < 1:
        raise InvalidArgument(f"{what}: since_version is {since_version!r}, expected an integer from 1")
