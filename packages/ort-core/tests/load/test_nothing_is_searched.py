"""Where a load or a first run asks for one thing among thousands, it looks at none of the others."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from growing_kinds import MORE

import ort_core
from ort_core.cpu.direct.call_layout import MAX_ARRAYS
from ort_core.cpu.direct.direct_calls import build_direct_calls
from ort_core.cpu.partition import bounds, partition
from ort_core.ir.rejection import Rejection


class ComparedName(str):
    """A name that counts how often names like it are compared."""

    __slots__ = ()
    comparisons: ClassVar[int] = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        ComparedName.comparisons += 1
        return str.__eq__(self, other)


class SearchedNodes(tuple):
    """Nodes of which it is noted when one is looked for among all of them."""

    __slots__ = ()
    searches: ClassVar[int] = 0

    def __contains__(self, node: object) -> bool:
        SearchedNodes.searches += 1
        return super().__contains__(node)


def test_feeds_of_a_direct_call_are_numbered_without_comparing_their_names():
    names = [ComparedName(f"x{i}") for i in range(4 * MAX_ARRAYS)]
    found = build_direct_calls(None, names, range(1))  # which needs no program: there are too many feeds
    assert isinstance(found, Rejection)
    assert ComparedName.comparisons < len(names)


def test_a_node_whose_size_nothing_tells_is_not_searched_in_its_group(monkeypatch, tmp_path):
    told = []

    def unbound_nodes(lowering, group, others):
        told.append(bounds.unbound_nodes(lowering, SearchedNodes(group), others))
        return told[-1]

    monkeypatch.setattr(partition, "unbound_nodes", unbound_nodes)
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path))
    session = ort_core.InferenceSession(MORE["unknown sizes"](80).proto(), providers=["CPUExecutionProvider"])
    session.run(None, {"x": np.ones((2, 4), np.float32)})
    assert max(map(len, told)) > 20, "no node was refused for its size"
    assert SearchedNodes.searches == 0
