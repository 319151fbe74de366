"""OpRunAdapter: a subclass of ``onnx.reference.OpRun`` as a kernel of the engine's calling convention."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import onnx
import onnx.helper
import onnx.numpy_helper
from onnx.reference.op_run import OpRun

from ort_core.errors import InvalidType, NotImplemented
from ort_core.onnx_io.schemas import convert_schema
from ort_core.ops.schema import OpSchema

if TYPE_CHECKING:
    from ort_core.kernels.kernel import KernelContext, KernelFunction

_INSTANCE = "op_run_instance"  # key of KernelContext.state


class OpRunAdapter:
    """What the engine needs of one subclass. Its ``_run`` takes inputs by position and attributes by name."""

    def __init__(self, candidate: object) -> None:
        if not (isinstance(candidate, type) and issubclass(candidate, OpRun)):
            raise InvalidType(f"{candidate!r} is not a subclass of onnx.reference.op_run.OpRun")
        self._class: type[OpRun] = candidate
        self.domain = "" if candidate.op_domain == "ai.onnx" else candidate.op_domain
        self.op_type = candidate.__name__
        declared = getattr(candidate, "op_schema", None)
        self.schema: OpSchema | None = None if declared is None else convert_schema(declared)

    @property
    def run_function(self) -> Callable[..., Any]:
        """The method that computes."""
        return self._class._run

    def attribute_names(self) -> tuple[str, ...]:
        """Return the attributes: those of the schema, else the parameters of ``_run`` that have defaults."""
        if self.schema is not None:
            return tuple(self.schema.attributes)
        parameters = inspect.signature(self._class._run).parameters.values()
        return tuple(p.name for p in parameters if p.default is not p.empty or p.kind is p.KEYWORD_ONLY)

    def kernel(self) -> KernelFunction:
        """Return a kernel that keeps one instance of the class for each node."""
        names = self.attribute_names()

        def run(*inputs: Any, ctx: KernelContext, **attributes: Any) -> tuple[Any, ...]:  # Any: run-time values
            instance = ctx.state.get(_INSTANCE)
            if instance is None:
                instance = ctx.state[_INSTANCE] = self._instance(len(inputs), ctx, attributes)
            return instance.run(*inputs)

        kinds = inspect.Parameter
        keywords = [kinds(name, kinds.KEYWORD_ONLY, default=None) for name in names]
        positional = kinds("inputs", kinds.VAR_POSITIONAL)
        run.__signature__ = inspect.Signature([positional, *keywords, kinds("ctx", kinds.KEYWORD_ONLY)])  # type: ignore[attr-defined]  # what inspect.signature looks for
        run.__module__, run.__qualname__ = self._class.__module__, f"{self._class.__qualname__}._run"
        return run

    def _instance(self, count: int, ctx: KernelContext, attributes: dict[str, Any]) -> OpRun:  # Any: as in run
        node = onnx.NodeProto(op_type=self.op_type, domain=self.domain, name=ctx.node_name)
        node.input.extend(f"input_{index}" for index in range(count))
        node.output.extend(f"output_{i}" if there else "" for i, there in enumerate(ctx.output_present))
        node.attribute.extend(self._attribute(name, value) for name, value in attributes.items())
        parameters = {"log": _no_log, "opsets": {self.domain: ctx.opset}, "new_ops": {}, "verbose": 0}
        return self._class(node, parameters)

    def _attribute(self, name: str, value: Any) -> onnx.AttributeProto:  # Any: a run-time attribute
        if callable(value):
            raise NotImplemented(
                f"{self.op_type} is an OpRun with a graph in attribute {name!r}: use custom_op instead"
            )
        if hasattr(value, "dtype"):
            return onnx.helper.make_attribute(name, onnx.numpy_helper.from_array(value))
        kind = self.schema.attributes[name].kind if self.schema is not None else None
        return onnx.helper.make_attribute(name, value, attr_type=kind if value == () else None)


def _no_log(pattern: str, *args: object) -> None:
    """Do nothing: the engine logs runs itself."""
