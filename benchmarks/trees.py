"""Tree ensembles beside onnxruntime over the number of trees, their depth and the batch, as `side_by_side.py` measures.

The trees are made here: complete to a random depth of every leaf near the one asked for, splits at normally distributed
thresholds of random features, one regression target or three classes. Features are drawn from the same distribution,
so that walks end all over the trees.

    python benchmarks/trees.py [--trees 10 100 500] [--depth 5 12] [--batch 1 100 10000] [--classes 0] [--json FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from rich.console import Console
from side_by_side import TABLE_WIDTH, Row, measured, table_of
from workloads import TREES, Workload

FEATURES = 20
STOPS = 0.15  # chance that a branch ends one level before the depth asked for, and again before that


@dataclass
class Forest:
    """Random trees as the attribute lists of TreeEnsembleRegressor and TreeEnsembleClassifier."""

    trees: int
    depth: int
    random: np.random.Generator
    nodes: list[tuple[int, int, str, int, float, int, int]] = field(default_factory=list)

    def grow(self) -> Forest:
        """Make all trees, level by level."""
        for tree in range(self.trees):
            level, count = [0], 1
            for depth in range(self.depth + 1):
                following = []
                for node in level:
                    if depth == self.depth or (depth >= self.depth - 2 and self.random.random() < STOPS):
                        self.nodes.append((tree, node, "LEAF", 0, 0.0, 0, 0))
                        continue
                    feature, threshold = int(self.random.integers(FEATURES)), float(self.random.standard_normal())
                    self.nodes.append((tree, node, "BRANCH_LEQ", feature, threshold, count, count + 1))
                    following += [count, count + 1]
                    count += 2
                level = following
        return self

    def model(self, classes: int) -> onnx.ModelProto:
        """Return a regressor, or a classifier of so many classes whose leaves score all of them."""
        names = ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids")
        columns = zip(*self.nodes, strict=True)
        attributes = {f"nodes_{name}": list(column) for name, column in zip(names, columns, strict=True)}
        prefix, targets = ("class", classes) if classes else ("target", 1)
        leaves = [(tree, node) for tree, node, mode, *_ in self.nodes if mode == "LEAF"]
        attributes[f"{prefix}_treeids"] = [tree for tree, _ in leaves for _ in range(targets)]
        attributes[f"{prefix}_nodeids"] = [node for _, node in leaves for _ in range(targets)]
        attributes[f"{prefix}_ids"] = list(range(targets)) * len(leaves)
        weights = self.random.standard_normal(len(leaves) * targets) / self.trees
        attributes[f"{prefix}_weights"] = weights.astype(np.float32).tolist()
        attributes.update({"classlabels_int64s": list(range(classes))} if classes else {"n_targets": 1})
        op_type = "TreeEnsembleClassifier" if classes else "TreeEnsembleRegressor"
        results = [("label", TensorProto.INT64)] if classes else []
        results.append(("scores", TensorProto.FLOAT))
        info = helper.make_tensor_value_info
        node = helper.make_node(op_type, ["x"], [name for name, _ in results], domain="ai.onnx.ml", **attributes)
        outputs = [info(name, dtype, None) for name, dtype in results]
        graph = helper.make_graph([node], "trees", [info("x", TensorProto.FLOAT, ["rows", FEATURES])], outputs)
        opsets = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 18)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def main() -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, nargs="+", default=[10, 100, 500])
    parser.add_argument("--depth", type=int, nargs="+", default=[5, 12])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 100, 10_000])
    parser.add_argument("--classes", type=int, default=0, help="0 for a regressor")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--duration", type=float, default=5.0, help="seconds for each point")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each engine, at least 5")
    parser.add_argument("--json", type=Path, help="write one JSON row a point there")
    arguments = parser.parse_args()
    rows: list[Row] = []
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory() as folder:
        for trees, depth in itertools.product(arguments.trees, arguments.depth):
            path = Path(folder) / f"{trees}x{depth}.onnx"
            forest = Forest(trees, depth, np.random.default_rng(trees * 100 + depth)).grow()
            onnx.save(forest.model(arguments.classes), path)
            for batch in arguments.batch:
                console.print(f"measuring {trees} trees of depth {depth}, batch {batch}")
                workload = Workload(f"{trees} trees, depth {depth}, batch {batch}", path, TREES, {"rows": batch})
                row = measured(workload, "onnxruntime", arguments.threads, arguments.duration, arguments.rounds)
                row |= {"trees": trees, "depth": depth, "batch": batch, "classes": arguments.classes}
                rows.append(row)
    if arguments.json:
        arguments.json.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    Console(width=None if sys.stdout.isatty() else TABLE_WIDTH).print(table_of(rows, "onnxruntime"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
