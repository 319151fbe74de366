"""check_custom_op(): one call that tests a user's operator the way the engine will use it.

For each case: the kernel inside its border (numbers, types and shapes of results), its shape function on symbolic
sizes, inputs that may not be written to or are strided, equal results of a second call, the loop kernel and the CUDA
kernel against the numpy one, many threads at once, and a model that was saved and loaded.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ort_core import tolerances
from ort_core.custom_ops.custom_op import CustomOp
from ort_core.custom_ops.definition import OpDefinition
from ort_core.custom_ops.library import OpLibrary
from ort_core.custom_ops.operators import Operators
from ort_core.environment import default_environment
from ort_core.errors import InvalidArgument
from ort_core.ir.attributes import Attribute, AttributeKind
from ort_core.ir.dims import Dim, SymbolicDim
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.kernels.kernel import KernelContext, Unguarded
from ort_core.onnx_io.load import load_model
from ort_core.onnx_io.save import model_to_bytes, save_model
from ort_core.ops.shape_inference import infer_types
from ort_core.options import SessionOptions
from ort_core.session import InferenceSession
from ort_core.testing.custom_op_cases import OpCase, random_cases
from ort_core.testing.custom_op_cuda import CudaCase, run_emulated
from ort_core.testing.environments import without_operators
from ort_core.tolerances import ToleranceName

REFERENCE, CPU = "ReferenceExecutionProvider", "CPUExecutionProvider"
_OPSET = 21  # of ai.onnx in the models that are made; no node of it is in them


@dataclass(frozen=True)
class OpReport:
    """What was checked, and what could not be, with the reason. Printing it shows both."""

    operator: str
    num_cases: int
    checked: tuple[str, ...]
    not_checked: Mapping[str, str]

    def __str__(self) -> str:
        lines = [f"{self.operator}: {self.num_cases} cases", *(f"  checked: {each}" for each in self.checked)]
        return "\n".join([*lines, *(f"  not checked: {name} ({why})" for name, why in self.not_checked.items())])


def check_custom_op(
    operator: object,
    cases: Iterable[OpCase | Sequence[np.ndarray | None]] | None = None,
    *,
    tolerance: ToleranceName = "approximate",
    num_threads: int = 4,
    seed: int = 0,
) -> OpReport:
    """Test an operator.

    Args:
        operator: what an ``OpLibrary`` takes.
        cases: what to run it on; a plain sequence of inputs is a case without attributes. May be left out for an
            operator with a loop kernel and no required attributes: it takes random arrays of any shape.
        tolerance: how far the loop kernel, the CUDA kernel and strided inputs may lead from the numpy kernel.
        num_threads: how many threads run the operator at once.
        seed: of random inputs.

    Returns:
        What was checked and what was not, with the reason.

    Raises:
        AssertionError: a check failed; the message says which, on which inputs, what was found and expected.
        OrtError: the operator failed.
    """
    library = OpLibrary("under test", [operator])
    (definition,) = library.operators
    tried = [each if isinstance(each, OpCase) else OpCase(each) for each in cases or random_cases(definition, seed)]
    if not tried:
        raise InvalidArgument("check_custom_op was given no cases")
    checker = _Checker(library, definition, operator, tolerance, num_threads)
    with without_operators({definition.key}):  # an installed package may bring the operator: the one given is tested
        for case in tried:
            checker.check(case)
        checker.check_cuda()
    unchecked = {
        f"{name}, in some cases" if name in checker.checked else name: why for name, why in checker.not_checked.items()
    }
    return OpReport(definition.qualified_name, len(tried), tuple(checker.checked), unchecked)


class _Checker:
    """Checks one operator; notes what was checked, in order, and what could not be."""

    def __init__(
        self,
        library: OpLibrary,
        definition: OpDefinition,
        operator: object,
        tolerance: ToleranceName,
        num_threads: int,
    ) -> None:
        self._library, self._definition, self._operator = library, definition, operator
        self._tolerance: ToleranceName = tolerance
        self._num_threads = num_threads
        self._done: list[tuple[OpCase, list[np.ndarray]]] = []
        self.checked: dict[str, None] = {}
        self.not_checked: dict[str, str] = {}

    def check(self, case: OpCase) -> None:
        model = self._model(case)
        feeds = _feeds(case)
        for array in feeds.values():
            array.flags.writeable = False
        content = model_to_bytes(model)
        with self._session(content, REFERENCE) as session:
            expected: list[Any] = session.run(None, feeds)  # Any: sequences and maps as well as arrays
            self._note("results inside the border: count, types, shapes, inputs left as they were")
            if case.expected is not None:
                self._compare(expected, case.expected, case, "the kernel differs from the expected outputs")
                self._note("results as expected")
            self._check_again(session, feeds, expected, case)
            self._check_threads(session, feeds, expected, case)
        self._check_shapes(case, expected)
        self._check_strided(case, expected)
        self._check_native(content, case, feeds, expected)
        self._check_saved(model, case, feeds, expected)
        self._done.append((case, expected))

    def _check_again(
        self, session: InferenceSession, feeds: Mapping[str, np.ndarray], expected: Sequence[np.ndarray], case: OpCase
    ) -> None:
        if self._is_deterministic():
            self._compare(session.run(None, feeds), expected, case, "a second call gives other results", "exact")
            self._note("a second call gives the same")
        else:
            self.not_checked["a second call gives the same"] = "the operator is not deterministic, or has state"

    def _check_threads(
        self, session: InferenceSession, feeds: Mapping[str, np.ndarray], expected: Sequence[np.ndarray], case: OpCase
    ) -> None:
        with ThreadPoolExecutor(self._num_threads) as pool:
            results = list(pool.map(lambda _: session.run(None, feeds), range(4 * self._num_threads)))
        if not self._is_deterministic():
            self.not_checked["equal results on threads"] = "the operator is not deterministic, or has state"
            return
        for found in results:
            self._compare(found, expected, case, f"{self._num_threads} threads at once give other results", "exact")
        self._note("equal results on threads")

    def _check_shapes(self, case: OpCase, expected: Sequence[np.ndarray]) -> None:
        name = "shape function on symbolic sizes"
        if self._definition.infer is None:
            self.not_checked[name] = "the operator has no shape function: shapes behind it are unknown before a run"
            return
        model, sizes = self._symbolic_model(case)
        operators = self._operators()
        infer_types(model, operators.schemas, operators.rules, strict=True)
        for value, array in zip(model.graph.outputs, expected, strict=True):
            if not isinstance(value.type, TensorType) or value.type.shape is None:
                continue
            told = tuple(_size(dim, sizes) for dim in value.type.shape)
            fits = len(told) == array.ndim and all(
                t in (None, size) for t, size in zip(told, array.shape, strict=False)
            )
            assert fits, (
                f"{self._where(case)}: the shape function gives {_shape_text(value.type.shape)} for {value.name}, "
                f"which is {told} here, the kernel {array.shape}"
            )
        self._note(name)

    def _check_strided(self, case: OpCase, expected: Sequence[np.ndarray]) -> None:
        kernel = self._definition.kernel
        if kernel is None or not self._is_deterministic():
            return
        strided = [None if array is None else _strided(array) for array in case.inputs]
        attributes = {name: tuple(v) if isinstance(v, list) else v for name, v in case.attributes.items()}
        found = kernel(*strided, **attributes, ctx=self._context(len(expected)))
        self._compare(found, expected, case, "strided inputs give other results")
        self._note("strided inputs")

    def _context(self, num_outputs: int) -> KernelContext:
        each = self._definition
        present, types = (True,) * num_outputs, (None,) * num_outputs
        return KernelContext(
            each.op_type, each.domain, each.since_version, "under_test", present, types, {}, Unguarded()
        )

    def _check_native(
        self, content: bytes, case: OpCase, feeds: Mapping[str, np.ndarray], expected: Sequence[np.ndarray]
    ) -> None:
        with self._session(content, CPU) as session:
            found = session.run(None, feeds)
            is_native, why = _is_native(session)
        if self._is_deterministic():
            self._compare(found, expected, case, f"{CPU} differs from the numpy kernel")
        if self._definition.meaning is not None:
            if is_native:
                self._note("loop kernel compiled by the CPU provider")
            else:
                self.not_checked["loop kernel compiled by the CPU provider"] = why

    def _check_saved(
        self, model: Model, case: OpCase, feeds: Mapping[str, np.ndarray], expected: Sequence[np.ndarray]
    ) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "operator.onnx"
            save_model(model, path)
            assert model_to_bytes(load_model(path)) == path.read_bytes(), (
                f"{self._where(case)}: a saved model differs when it is saved again"
            )
            with self._session(str(path), REFERENCE) as session:
                found = session.run(None, feeds)
        if self._is_deterministic():
            self._compare(found, expected, case, "a saved model gives other results", "exact")
        self._note("round trip through a saved model")

    def check_cuda(self) -> None:
        """Run the CUDA forms on all cases that were checked, compiled together."""
        convert = self._operator.convert if isinstance(self._operator, CustomOp) else dict
        defaults = _defaults(self._definition)
        cases = [CudaCase(case.inputs, convert({**defaults, **case.attributes}), made) for case, made in self._done]
        for name, results in run_emulated(self._definition, cases).items():
            for found, (case, expected) in zip(results, self._done, strict=True):
                if isinstance(found, str):
                    self.not_checked[name] = found
                    continue
                self._compare(found, expected, case, f"{name} differs from the numpy kernel")
                self._note(name)

    def _compare(
        self,
        found: Sequence[object],
        expected: Sequence[np.ndarray],
        case: OpCase,
        what: str,
        tolerance: ToleranceName | None = None,
    ) -> None:
        for index, (left, right) in enumerate(zip(found, expected, strict=True)):
            if not isinstance(left, np.ndarray) or not isinstance(right, np.ndarray):
                assert left == right, f"{self._where(case)}: {what}: output {index} is {left!r}, not {right!r}"
                continue
            same = left.shape == right.shape and left.dtype == right.dtype
            assert same, (
                f"{self._where(case)}: {what}: output {index} is {left.dtype}{list(left.shape)}, "
                f"expected {right.dtype}{list(right.shape)}"
            )
            result = tolerances.compare(left, right, tolerance or self._tolerance)
            assert result.passes, f"{self._where(case)}: {what}: output {index}: {result}"

    def _where(self, case: OpCase) -> str:
        inputs = ", ".join("none" if a is None else f"{a.dtype}{list(a.shape)}" for a in case.inputs)
        return f"{self._definition.qualified_name} on ({inputs}) with {dict(case.attributes)}"

    def _note(self, what: str) -> None:
        self.checked[what] = None

    def _is_deterministic(self) -> bool:
        schema = self._definition.schema
        return schema is None or schema.is_deterministic

    def _operators(self) -> Operators:
        return default_environment().operators.extended([self._library])

    def _session(self, source: bytes | str, provider: str) -> InferenceSession:
        options = SessionOptions()
        options.register_custom_ops_library(self._library)
        return InferenceSession(source, options, providers=[provider])

    def _model(self, case: OpCase) -> Model:
        types = [None if a is None else TensorType(_data_type(a), a.shape) for a in case.inputs]
        return self._model_of(case, types)

    def _symbolic_model(self, case: OpCase) -> tuple[Model, dict[str, int]]:
        sizes: dict[str, int] = {}
        types: list[TensorType | None] = []
        for index, array in enumerate(case.inputs):
            if array is None:
                types.append(None)
                continue
            dims = [SymbolicDim.named(f"input{index}_axis{axis}") for axis in range(array.ndim)]
            sizes |= {f"input{index}_axis{axis}": size for axis, size in enumerate(array.shape)}
            types.append(TensorType(_data_type(array), tuple(dims)))
        return self._model_of(case, types), sizes

    def _model_of(self, case: OpCase, types: Sequence[TensorType | None]) -> Model:
        each, graph = self._definition, Graph("operator")
        inputs = [None if t is None else Value(f"input{i}", t) for i, t in enumerate(types)]
        for value in inputs:
            if value is not None:
                graph.add_input(value)
        count = case.num_outputs or (len(each.schema.outputs) if each.schema else 1)
        if each.function is not None:
            count = len(each.function.graph.outputs)
        kinds = each.schema.attributes if each.schema else {}
        attributes = [
            _attribute(n, value, kinds[n].kind if n in kinds else None) for n, value in case.attributes.items()
        ]
        outputs = [Value(f"output{i}") for i in range(count)]
        graph.append(Node(each.op_type, inputs, outputs, attributes, domain=each.domain, name="under_test"))
        graph.set_outputs(outputs)
        model = Model(graph, {"": _OPSET, each.domain: each.since_version})
        operators = self._operators()
        operators.adopt(model)
        infer_types(model, operators.schemas, operators.rules)
        model.functions.clear()
        return model


def _attribute(name: str, value: object, kind: AttributeKind | None) -> Attribute:
    """Return an attribute of the declared kind: an int for a float is one, as in Python."""
    if isinstance(value, bool):
        value = int(value)
    if kind is AttributeKind.FLOAT and isinstance(value, int):
        value = float(value)
    if kind is not None and isinstance(value, (list, tuple)):
        return Attribute(name, kind, tuple(value))
    return Attribute.of(name, value)


def _defaults(definition: OpDefinition) -> dict[str, object]:
    declared = definition.schema.attributes.values() if definition.schema else ()
    return {each.name: each.default.value for each in declared if each.default is not None}


def _feeds(case: OpCase) -> dict[str, np.ndarray]:
    return {f"input{i}": array.copy() for i, array in enumerate(case.inputs) if array is not None}


def _data_type(array: np.ndarray) -> DataType:
    return DataType.from_numpy(array.dtype)


def _strided(array: np.ndarray) -> np.ndarray:
    """Return an equal array whose elements do not lie beside each other."""
    if not array.ndim:
        return array
    wide = np.repeat(array, 2, axis=-1)
    return wide[..., ::2]


def _size(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    if not isinstance(dim, SymbolicDim):
        return dim
    return dim.evaluate(sizes) if dim.symbols() <= sizes.keys() else None


def _shape_text(shape: Sequence[Dim]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


def _is_native(session: InferenceSession) -> tuple[bool, str]:
    """Return whether a session's only node was compiled, and why not."""
    for planned in session._loaded.prepared.plan.steps:
        compiled = getattr(planned.step, "compiled", None)
        if getattr(compiled, "native_programs", ()):
            return True, ""
        reasons = "; ".join(getattr(compiled, "refusals", {}).values())
        return False, reasons or "the CPU compiler is not available"
    return False, "nothing was left to run"
