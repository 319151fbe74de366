"""SchemaRegistry: which schema an operator has at an opset. An object that someone builds, extends and passes."""

from __future__ import annotations

from collections.abc import Callable

from ort_core.ir.rejection import Rejection
from ort_core.ops.schema import OpSchema

SchemaSource = Callable[[str, str, int], OpSchema | None]  # (domain, op_type, opset) -> schema


class SchemaRegistry:
    """Schemas by (domain, op_type), the newest version not above the opset; sources are asked when none is added.

    Sources answer lazily (``onnx_io.schemas.find_onnx_schema`` is one); their answers are kept.
    """

    def __init__(self, *sources: SchemaSource) -> None:
        self._sources = sources
        self._added: dict[tuple[str, str], list[OpSchema]] = {}
        self._found: dict[tuple[str, str, int], OpSchema | None] = {}

    def add(self, schema: OpSchema) -> None:
        """Add one operator version.

        Raises:
            ValueError: that version of the operator is there already.
        """
        versions = self._added.setdefault((schema.domain, schema.op_type), [])
        if any(other.since_version == schema.since_version for other in versions):
            name = f"{schema.domain or 'ai.onnx'}::{schema.op_type}"
            raise ValueError(f"schema {name} version {schema.since_version} is registered twice")
        versions.append(schema)
        versions.sort(key=lambda item: -item.since_version)
        self._found.clear()

    def find(self, domain: str, op_type: str, opset: int) -> OpSchema | Rejection:
        """Return the schema of an operator at an opset, or why there is none."""
        key = (domain, op_type, opset)
        if key not in self._found:
            self._found[key] = self._look_up(domain, op_type, opset)
        schema = self._found[key]
        if schema is None:
            return Rejection(f"no operator {domain or 'ai.onnx'}::{op_type} at opset {opset}")
        return schema

    def _look_up(self, domain: str, op_type: str, opset: int) -> OpSchema | None:
        for schema in self._added.get((domain, op_type), ()):
            if schema.since_version <= opset:
                return schema
        for source in self._sources:
            schema_or_none = source(domain, op_type, opset)
            if schema_or_none is not None:
                return schema_or_none
        return None

    def extended(self) -> SchemaRegistry:
        """Return a new registry that starts with everything in this one."""
        copy = SchemaRegistry(*self._sources)
        copy._added = {key: list(versions) for key, versions in self._added.items()}
        return copy
