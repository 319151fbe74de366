"""NodeArg and ModelMetadata: what a session tells about its model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ort_core.frozen import frozen
from ort_core.ir.types import OptionalType, Shape, SparseTensorType, TensorType, ValueType
from ort_core.runtime.feeds import shown_dim

if TYPE_CHECKING:
    from ort_core.ir.model import Model
    from ort_core.ir.values import Value

NO_VERSION = (1 << 63) - 1  # what onnxruntime shows for a model without a version


@frozen
class NodeArg:
    """An input or output: its name, its type such as ``tensor(float)``, and its shape (sizes, names, ``None``)."""

    name: str
    type: str
    shape: list[int | str | None]

    @classmethod
    def of(cls, value: Value) -> NodeArg:
        """Describe a value."""
        return cls(
            value.name, "" if value.type is None else str(value.type), list(map(shown_dim, _shape(value.type) or ()))
        )

    def __hash__(self) -> int:
        return hash((self.name, self.type))

    def __str__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


def _shape(value_type: ValueType | None) -> Shape | None:
    if isinstance(value_type, (TensorType, SparseTensorType)):
        return value_type.shape
    if isinstance(value_type, OptionalType):
        return _shape(value_type.element)
    return None


class ModelMetadata:
    """What the model says about itself."""

    __slots__ = (
        "custom_metadata_map", "description", "domain", "graph_description", "graph_name", "producer_name", "version",
    )  # fmt: skip

    def __init__(
        self,
        custom_metadata_map: Mapping[str, str] | None = None,
        description: str = "",
        domain: str = "",
        graph_description: str = "",
        graph_name: str = "",
        producer_name: str = "",
        version: int = NO_VERSION,
    ) -> None:
        self.custom_metadata_map = dict(custom_metadata_map or {})
        self.description, self.domain, self.graph_description = description, domain, graph_description
        self.graph_name, self.producer_name, self.version = graph_name, producer_name, version

    def as_dict(self) -> dict[str, object]:
        """Return all that is said, by name."""
        return {name: getattr(self, name) for name in self.__slots__}

    def as_texts(self, producer_version: str) -> dict[str, str]:
        """Return all that is said, and the maker's version, as onnxruntime hands it to delegates."""
        return {
            "doc_string": self.description, "domain": self.domain, "graph_description": self.graph_description,
            "graph_name": self.graph_name, "model_version": str(self.version), "producer_name": self.producer_name,
            "producer_version": producer_version, **self.custom_metadata_map,
        }  # fmt: skip

    def __eq__(self, other: object) -> bool:
        return self.as_dict() == other.as_dict() if isinstance(other, ModelMetadata) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        return f"ModelMetadata({', '.join(f'{name}={value!r}' for name, value in self.as_dict().items())})"

    @classmethod
    def of(cls, model: Model) -> ModelMetadata:
        """Collect a model's metadata."""
        return cls(
            dict(model.metadata), model.doc, model.domain, model.graph.doc, model.graph.name, model.producer_name,
            model.model_version or NO_VERSION,
        )  # fmt: skip
