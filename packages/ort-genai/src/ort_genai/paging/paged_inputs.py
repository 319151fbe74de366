"""Names of the inputs that a graph over blocks has besides those of the graph that it was made of."""

from __future__ import annotations

ENDS, PAST, TABLE, WANTED = "paged/ends", "paged/past", "paged/table", "paged/wanted"
