"""VersionTable: things of operators by version; the one with the highest fitting since-version is found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

_T = TypeVar("_T")


class VersionTable(Generic[_T]):
    """A look-up from (domain, op_type, opset) to what holds from a since-version on.

    An object that someone builds and passes: meanings, device kernels and functions of operators are kept so.
    """

    def __init__(self) -> None:
        self._items: dict[tuple[str, str], list[tuple[int, _T]]] = {}

    def add(self, domain: str, op_type: str, since_version: int, item: _T) -> None:
        """Add what holds from ``since_version`` of the operator on.

        Raises:
            ValueError: that version is taken.
        """
        known = self._items.setdefault((domain, op_type), [])
        if any(since == since_version for since, _ in known):
            raise ValueError(f"{domain or 'ai.onnx'}::{op_type} version {since_version} is registered twice")
        known.append((since_version, item))
        known.sort(key=lambda pair: -pair[0])

    def find(self, domain: str, op_type: str, opset: int) -> _T | None:
        """Return what holds at ``opset``, or ``None``."""
        for since, item in self._items.get((domain, op_type), ()):
            if since <= opset:
                return item
        return None

    def __bool__(self) -> bool:
        return bool(self._items)

    def __iter__(self) -> Iterator[tuple[str, str, int]]:
        return iter([(domain, name, since) for (domain, name), known in self._items.items() for since, _ in known])

    def extended(self) -> VersionTable[_T]:
        """Return a new table that starts with everything in this one."""
        copy: VersionTable[_T] = VersionTable()
        copy._items = {key: list(known) for key, known in self._items.items()}
        return copy
