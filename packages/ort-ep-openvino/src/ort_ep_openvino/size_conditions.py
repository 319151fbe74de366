"""SizeConditions: nodes that OpenVINO computes rightly for some sizes only, asked about anew for those of each run."""

from __future__ import annotations

import threading
from collections import OrderedDict

from ort_core.plugin import GraphView
from ort_core.plugin.claims import places_of_names
from ort_ep_openvino.lowering.sized_view import example_views, run_view, standing_view
from ort_ep_openvino.lowering.table import is_trusted_in_one, refusal
from ort_ep_openvino.output_shapes import Shape

MAX_ANSWERS = 256  # signatures of shapes that are remembered


class SizeConditions:
    """What must hold of the sizes of a run. Safe from threads.

    Args:
        view: the partition.
    """

    def __init__(self, view: GraphView) -> None:
        self._view, self._outside = view, frozenset(view.graph.inputs)
        self._places = places_of_names(view.graph)
        standing = standing_view(view, self._outside)
        examples = example_views(view, self._outside, self._places)
        # What the examples leave open, too, is right for what was known of the whole graph
        self._nodes = tuple(
            node
            for node in view.nodes
            if self._places and refusal(standing, node) is not None and is_trusted_in_one(examples, node)
        )
        self._lock = threading.Lock()
        self._answers: OrderedDict[tuple[Shape, ...], str | None] = OrderedDict()

    def refusal(self, shapes: tuple[Shape, ...]) -> str | None:
        """Return why OpenVINO would be wrong on inputs of these shapes, or ``None``."""
        if not self._nodes:
            return None
        with self._lock:
            if shapes in self._answers:
                return self._answers[shapes]
        answer = self._asked(shapes)
        with self._lock:
            self._answers[shapes] = answer
            if len(self._answers) > MAX_ANSWERS:
                self._answers.popitem(last=False)
        return answer

    def _asked(self, shapes: tuple[Shape, ...]) -> str | None:
        sizes: dict[str, int] = {}
        for name, places in self._places.items():
            found = {shapes[index][axis] for index, axis in places}
            if len(found) > 1:
                return f"{name!r} is the name of sizes that differ: {', '.join(map(str, sorted(found)))}"
            sizes[name] = found.pop()
        seen = run_view(self._view, self._outside, sizes)
        reasons = ((node, refusal(seen, node)) for node in self._nodes)
        return next((f"{node.op_type} {node.name!r}: {reason}" for node, reason in reasons if reason is not None), None)
