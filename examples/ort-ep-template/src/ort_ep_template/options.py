"""The provider's options: a field each, parsed from onnxruntime's strings; an unknown name is an error."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TemplateOptions:
    """Options of a session's provider.

    Attributes:
        max_partition_nodes: larger claims are refused; 0 sets no limit.
    """

    max_partition_nodes: int = 0

    def __post_init__(self) -> None:
        if self.max_partition_nodes < 0:
            raise ValueError(f"max_partition_nodes is {self.max_partition_nodes}, expected 0 or more")
