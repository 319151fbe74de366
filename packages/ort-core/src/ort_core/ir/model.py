"""Model: a graph with its functions, operator-set imports and metadata."""

from __future__ import annotations

from dataclasses import dataclass, field

from ort_core.ir.attributes import Attribute
from ort_core.ir.graph import Graph

FunctionKey = tuple[str, str, str]  # domain, name, overload


@dataclass(slots=True)
class Function:
    """A model-local function: a graph whose attributes may refer to the attributes of the calling node.

    The graph's inputs and outputs are the function's, in order. ``attribute_names`` are required of the caller,
    ``attribute_defaults`` are optional.
    """

    domain: str
    name: str
    overload: str
    graph: Graph
    attribute_names: tuple[str, ...] = ()
    attribute_defaults: dict[str, Attribute] = field(default_factory=dict)
    opset_imports: dict[str, int] = field(default_factory=dict)
    doc: str = ""
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> FunctionKey:
        """What a node names to call this function."""
        return (self.domain, self.name, self.overload)


@dataclass(slots=True)
class Model:
    """A whole model. ``opset_imports`` maps a domain (``""`` for ai.onnx) to its version.

    ``notes`` say what loading made of the file, a sentence each.
    """

    graph: Graph
    opset_imports: dict[str, int]
    functions: dict[FunctionKey, Function] = field(default_factory=dict)
    ir_version: int = 10
    producer_name: str = ""
    producer_version: str = ""
    domain: str = ""
    model_version: int = 0
    doc: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def opset(self, domain: str) -> int | None:
        """Return the imported version of a domain, or ``None``."""
        return self.opset_imports.get("" if domain == "ai.onnx" else domain)

    def freeze(self) -> Model:
        """Refuse edits to all graphs from now on; returns self."""
        self.graph.freeze()
        for function in self.functions.values():
            function.graph.freeze()
        return self

    def clone(self) -> Model:
        """Return an editable copy: new graphs, nodes and values; constants are shared."""
        from ort_core.ir.subgraph import clone_graph

        functions = {
            key: Function(
                f.domain, f.name, f.overload, clone_graph(f.graph), f.attribute_names, dict(f.attribute_defaults),
                dict(f.opset_imports), f.doc, dict(f.metadata),
            )
            for key, f in self.functions.items()
        }  # fmt: skip
        return Model(
            clone_graph(self.graph), dict(self.opset_imports), functions, self.ir_version, self.producer_name,
            self.producer_version, self.domain, self.model_version, self.doc, dict(self.metadata), self.notes,
        )  # fmt: skip
