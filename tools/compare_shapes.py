"""Shapes known here and by onnxruntime's symbolic_shape_infer: ``python tools/compare_shapes.py [--merge] PATH ...``.

Each path is a model, or a folder whose models are taken; without any the node cases of the installed onnx are. For each
value that both models have: does one tool know a rank or a size that the other leaves open, do they contradict each
other? A size that only an invented name stands for is open. Sizes of names are compared at three assignments: where
they differ, one tool takes two names of the model for one size, which is counted, but no fault. Where numbers
contradict each other, a run tells who is right: of onnx's reference evaluator with a node case's inputs, else of
onnxruntime with made-up ones. What onnxruntime's tool takes from the default of an input, which callers may replace, is
counted apart. The exit status is 1 where onnxruntime knows more or is right, or this project's tool fails.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from ort_conformance.suites.backend_cases import node_cases
from ort_core.model_graphs import reads_of

TIME_LIMIT_S = 120  # for one model; both tools take far less on all but the largest
_PRIMES = (101, 211, 307, 401, 503, 601, 701, 809, 907, 1009)
Shape = list[int | str | None] | None


Source = tuple[str, Path | None, onnx.ModelProto]  # a name, the file, the model without external data


def find_models(paths: list[Path]) -> Iterator[Source]:
    """Yield the models of files and folders; those of onnx's node cases where no path is given."""
    for path in paths:
        for each in sorted(path.rglob("*.onnx")) if path.is_dir() else [path]:
            yield f"{each.parent.name}/{each.name}", each, onnx.load(each, load_external_data=False)
    for case in () if paths else (*node_cases(is_ml=False), *node_cases(is_ml=True)):
        if "@" not in case.name:
            yield case.name, None, case.model()


def shapes_of(model: onnx.ModelProto) -> dict[str, Shape]:
    """Return the stated shapes of tensors by name; a name that several graphs use counts once."""
    found: dict[str, Shape] = {}

    def visit(graph: onnx.GraphProto) -> None:
        made = {name for node in graph.node for name in node.output}
        for entry in (*graph.value_info, *graph.output):
            if entry.name in made and entry.type.HasField("tensor_type"):
                found.setdefault(entry.name, _shape(entry.type.tensor_type))
        for node in graph.node:
            for attribute in node.attribute:
                for inner in (attribute.g, *attribute.graphs):
                    visit(inner)

    visit(model.graph)
    return found


def _shape(tensor: onnx.TypeProto.Tensor) -> Shape:
    if not tensor.HasField("shape"):
        return None
    kinds = [(dim, dim.WhichOneof("value")) for dim in tensor.shape.dim]
    return [
        None if kind is None else _number(dim.dim_value) if kind == "dim_value" else dim.dim_param or None
        for dim, kind in kinds
    ]


def _number(size: int) -> int | None:
    return size if size >= 0 else None  # some exporters write -1 for an open size


def given_names(model: onnx.ModelProto) -> frozenset[str]:
    """Return the names of sizes that the model's inputs have."""
    return frozenset(
        dim.dim_param for each in model.graph.input for dim in each.type.tensor_type.shape.dim if dim.dim_param
    )


def knowledge(size: int | str | None, names: frozenset[str]) -> int:
    """Return 2 for a number, 1 for what follows from the inputs' names, 0 for what is open."""
    if size is None:
        return 0
    return 2 if not isinstance(size, str) else int(value_of(size, names, 0) is not None)


def value_of(size: int | str, names: frozenset[str], shift: int) -> Fraction | None:
    """Return what a size is where each name has another prime, ``None`` where other names are in it."""
    if not isinstance(size, str):
        return Fraction(size)
    text = size
    for place, name in enumerate(sorted(names, key=len, reverse=True)):
        number = _PRIMES[(place + shift) % len(_PRIMES)]
        text = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w.])", f"F({number})", text)
    functions = {
        "F": Fraction, "floor": math.floor, "ceiling": math.ceil, "Max": max, "Min": min, "max": max, "min": min,
        "broadcast": lambda *sizes: next((each for each in sizes if each != 1), 1), "Mod": lambda a, b: a % b,
    }  # fmt: skip
    try:
        return Fraction(eval(re.sub(r"(?<![\w(])(\d+)(?!\w)", r"F(\1)", text), {"__builtins__": {}}, functions))
    except (NameError, SyntaxError, TypeError, ZeroDivisionError):
        return None


def compare_shapes(ours: Shape, theirs: Shape, names: frozenset[str]) -> set[str]:
    """Return what may be said of two shapes of one value: ``ours``, ``theirs``, ``contradiction``, ``names``."""
    if ours is None or theirs is None:
        return {"theirs"} if ours is None and theirs is not None else {"ours"} if theirs is None and ours else set()
    if len(ours) != len(theirs):
        return {"contradiction"}
    found = set()
    for mine, other in zip(ours, theirs, strict=True):
        left, right = knowledge(mine, names), knowledge(other, names)
        if left != right:
            found.add("ours" if left > right else "theirs")
        elif left and any(value_of(mine, names, shift) != value_of(other, names, shift) for shift in (0, 3, 5)):
            found.add("names" if left == 1 else "contradiction")
    return found


def inspect(content: bytes, merges: bool) -> dict[str, object]:
    """Run both tools on one model and compare what they say."""
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference as Theirs

    from ort_tools.symbolic_shape_infer import SymbolicShapeInference as Ours

    logging.disable(logging.CRITICAL)
    model = onnx.load_from_string(content)
    if next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 0) < 7:
        return {"skipped": "below opset 7, or without ai.onnx"}
    found: dict[str, object] = {}
    ours = _inferred(Ours, model, merges, found, "ours failed")
    theirs = _inferred(Theirs, model, merges, found, "theirs failed")
    names = given_names(model)
    for value in sorted({*ours, *theirs}):
        pair = (ours.get(value), theirs.get(value))
        for difference in compare_shapes(*pair, names):
            found.setdefault(difference, []).append((value, *pair))  # type: ignore[attr-defined]  # lists alone
    found["values"] = len(ours)
    if "theirs" in found and (opened := without_defaults(model)) is not None:
        proven = _inferred(Theirs, opened, merges, {}, "")
        known: list[tuple[str, Shape, Shape]] = found.pop("theirs")  # type: ignore[assignment]  # as above
        for entry in known:
            is_proven = "theirs" in compare_shapes(entry[1], proven.get(entry[0]), names)
            key = "theirs" if is_proven else "theirs by a default"
            found.setdefault(key, []).append(entry)  # type: ignore[attr-defined]  # as above
    return found


def _inferred(tool: Any, model: onnx.ModelProto, merges: bool, found: dict[str, object], key: str) -> dict[str, Shape]:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    try:
        return shapes_of(tool.infer_shapes(copy, auto_merge=merges))
    except Exception as error:  # noqa: BLE001 - that a tool fails is a result
        found[key] = f"{type(error).__name__}: {error}"[:200]
        return shapes_of(model)


def without_defaults(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a model whose inputs have no defaults, where any has one: callers may replace these."""
    inputs = {each.name for each in model.graph.input}
    if not any(each.name in inputs for each in model.graph.initializer):
        return None
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    kept = [each for each in model.graph.initializer if each.name not in inputs]
    del opened.graph.initializer[:]
    opened.graph.initializer.extend(kept)
    return opened


def _work(connection: Connection, merges: bool) -> None:
    folder = tempfile.mkdtemp()
    os.chdir(folder)  # onnxruntime's tool leaves files where it runs
    while content := connection.recv():
        connection.send(inspect(content, merges))
    os.chdir(Path(folder).parent)
    shutil.rmtree(folder)


def results(models: Iterable[Source], merges: bool) -> Iterator[tuple[Source, dict[str, object]]]:
    """Yield what is found of each model; a process of its own is given up where one takes too long, or ends."""
    context = multiprocessing.get_context("spawn")
    worker = None
    for source in models:
        if worker is None:
            near, far = context.Pipe()
            worker = context.Process(target=_work, args=(far, merges), daemon=True)
            worker.start()
        near.send(source[2].SerializeToString())
        try:
            answer = near.recv() if near.poll(TIME_LIMIT_S) else None
        except (EOFError, ConnectionError):
            answer = None
        if answer is None:
            worker.kill()
            worker = None
            answer = {"given up": f"after {TIME_LIMIT_S} s, or its process ended"}
        yield source, answer
    if worker is not None:
        near.send(b"")
        worker.join()


Contradictions = list[tuple[str, Shape, Shape]]


def judge(source: Source, contradictions: Contradictions) -> dict[str, list[str]]:
    """Return the values whose shape in a run is another than this project's tool says, and those that no run gives."""
    found: dict[str, list[str]] = {}
    for value, ours, _ in contradictions:
        shape = _shape_in_a_run(source, value)
        if shape is None:
            found.setdefault("unjudged", []).append(value)
            continue
        sizes = ours or []
        numbers = zip(shape, sizes, strict=False)
        if len(shape) != len(sizes) or any(isinstance(size, int) and size != real for real, size in numbers):
            found.setdefault("ours wrong", []).append(value)
    return found


def _shape_in_a_run(source: Source, value: str) -> tuple[int, ...] | None:
    """Return the shape of a value in a run, ``None`` where neither of two sets of made-up inputs runs."""
    name, path, model = source
    asked = _up_to(model, value)
    if path is None:
        case = next(each for each in (*node_cases(is_ml=False), *node_cases(is_ml=True)) if each.name == name)
        return ReferenceEvaluator(asked).run(None, dict(next(iter(case.data_sets())).feeds))[0].shape
    import onnxruntime

    onnx.load_external_data_for_model(asked, str(path.parent))
    for number in (16, 1):
        try:
            session = onnxruntime.InferenceSession(asked.SerializeToString(), providers=["CPUExecutionProvider"])
            return np.asarray(session.run([value], _made_up(asked, number))[0]).shape
        except Exception as error:  # noqa: BLE001 - of whatever kind: these inputs say nothing of the value
            logging.getLogger(__name__).info("%s of %s with %s: %s", value, name, number, error)
    return None


def _up_to(model: onnx.ModelProto, value: str) -> onnx.ModelProto:
    """Return the part of a model that a value needs: other inputs need not be made up."""
    whole, model = model, onnx.ModelProto()
    model.CopyFrom(whole)
    makers = {name: node for node in model.graph.node for name in node.output}
    waiting, read, kept = [value], {value}, set()
    while waiting:
        node = makers.get(waiting.pop())
        if node is None or id(node) in kept:
            continue
        kept.add(id(node))
        waiting += reads_of(node)
        read |= set(reads_of(node))
    nodes = [node for node in model.graph.node if id(node) in kept]
    for kind, entries in (("input", model.graph.input), ("initializer", model.graph.initializer)):
        needed = [each for each in entries if each.name in read]
        model.graph.ClearField(kind)
        getattr(model.graph, kind).extend(needed)
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)
    model.graph.ClearField("value_info")  # what a file says of shapes may be what is judged
    model.graph.ClearField("output")
    model.graph.output.add(name=value)
    return model


def _made_up(model: onnx.ModelProto, number: int) -> dict[str, np.ndarray]:
    """Return ones for the inputs of a model, with a few elements along each open axis, and a number for single ones."""
    sizes: dict[str, int] = {}
    feeds = {}
    defaults = {each.name for each in model.graph.initializer}
    for each in model.graph.input:
        tensor = each.type.tensor_type
        if each.name in defaults:
            continue
        shape = [dim.dim_value or sizes.setdefault(dim.dim_param, len(sizes) + 2) for dim in tensor.shape.dim]
        fill = number if math.prod(shape) == 1 else 1
        feeds[each.name] = np.full(shape, fill, onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return feeds


def main() -> int:
    """Compare the models that the command line names, print what differs, and count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--merge", action="store_true", help="with auto_merge")
    parser.add_argument("--json", type=Path, help="write what is found of each model, a line each")
    parser.add_argument("paths", nargs="*", type=Path)
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    lines = []
    for source, found in results(find_models(args.paths), args.merge):
        name = source[0]
        counts["models"] += 1
        if "contradiction" in found:
            found |= judge(source, found["contradiction"])  # type: ignore[arg-type]  # it is a list
        for key, value in found.items():
            counts[key] += len(value) if isinstance(value, list) else value if isinstance(value, int) else 1
        for key in ("ours failed", "theirs", "contradiction", "ours wrong", "unjudged", "given up"):
            if found.get(key):
                print(f"{key:14} {name}: {str(found[key])[:300]}", flush=True)
        lines.append(json.dumps({"model": name, **found}))
    if args.json:
        args.json.write_text("\n".join(lines), encoding="utf-8")
    print(", ".join(f"{key}: {count}" for key, count in sorted(counts.items())))
    return int(any(counts[key] for key in ("ours failed", "theirs", "ours wrong")))


if __name__ == "__main__":
    sys.exit(main())
