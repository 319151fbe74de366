"""TypedAttributes: an operator's attributes by type, with defaults, for whatever reads them."""

from __future__ import annotations


class TypedAttributes:
    """Reads attributes through ``attribute``, which a subclass gives; one of another type counts as absent."""

    __slots__ = ()

    def attribute(self, name: str) -> object:
        """Return the value of an attribute, or ``None``."""
        raise NotImplementedError

    def int_of(self, name: str, default: int = 0) -> int:
        """Return an INT attribute."""
        found = self.attribute(name)
        return found if isinstance(found, int) else default

    def optional_int_of(self, name: str) -> int | None:
        """Return an INT attribute, ``None`` when absent."""
        found = self.attribute(name)
        return found if isinstance(found, int) else None

    def float_of(self, name: str, default: float = 0.0) -> float:
        """Return a FLOAT attribute."""
        found = self.attribute(name)
        return float(found) if isinstance(found, (int, float)) else default

    def optional_float_of(self, name: str) -> float | None:
        """Return a FLOAT attribute, ``None`` when absent."""
        found = self.attribute(name)
        return float(found) if isinstance(found, (int, float)) else None

    def string_of(self, name: str, default: str = "") -> str:
        """Return a STRING attribute."""
        found = self.attribute(name)
        return found if isinstance(found, str) else default

    def ints_of(self, name: str) -> tuple[int, ...] | None:
        """Return an INTS attribute, ``None`` when absent."""
        found = self.attribute(name)
        return found if isinstance(found, tuple) and all(isinstance(i, int) for i in found) else None

    def items_of(self, name: str) -> tuple[object, ...] | None:
        """Return a list attribute of any kind, ``None`` when absent."""
        found = self.attribute(name)
        return found if isinstance(found, tuple) else None
