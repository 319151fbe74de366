"""Test data sets as ONNX lays them out: ``test_data_set_N`` folders of inputs, and of the outputs that are expected."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ort_core.errors import InvalidArgument, OrtError
from ort_core.ir.model import Model
from ort_core.ir.values import Value


@dataclass(frozen=True, slots=True)
class DataSet:
    """One data set: feeds by input name, and expected results by output name (those that are there)."""

    name: str
    feeds: dict[str, object]
    expected: dict[str, object]


def find_data_sets(folder: Path) -> list[Path]:
    """Return the data sets in the folder of a model, in the order of their numbers."""
    found = [each for each in folder.glob("test_data_set_*") if each.is_dir() and any(each.glob("*put_*.pb"))]
    return sorted(found, key=lambda each: (_number(each.name), each.name))


def read_data_set(folder: Path, model: Model) -> DataSet:
    """Return what a data set holds.

    A file belongs to the value whose name it states, else to the one whose number is in the file's name.

    Raises:
        InvalidArgument: a file belongs to no value of the model, or does not hold a value of its type.
    """
    inputs, outputs = model.graph.inputs, model.graph.outputs
    required = [value for value in inputs if value.constant is None]  # old models list their weights as inputs, too
    return DataSet(
        folder.name, _read(folder, "input", required, inputs), _read(folder, "output", outputs, outputs)
    )  # fmt: skip


def _read(folder: Path, kind: str, numbered: Sequence[Value], named: Sequence[Value]) -> dict[str, object]:
    from ort_core.onnx_io.value_file import read_value  # onnx is only loaded for protobuf files

    names = {value.name for value in named}
    found: dict[str, object] = {}
    for path in sorted(folder.glob(f"{kind}_*.pb"), key=lambda each: (_number(each.stem), each.name)):
        number = _number(path.stem)
        target = numbered[number] if 0 <= number < len(numbered) else None
        try:
            stated, value = read_value(path.read_bytes(), None if target is None else target.type)
        except OrtError as error:
            raise InvalidArgument(f"{str(path)!r}: {error}") from error
        name = stated if stated in names else None if target is None else target.name
        if name is None:
            raise InvalidArgument(f"{str(path)!r} belongs to no {kind} of the model: {', '.join(sorted(names))}")
        found[name] = value
    return found


def _number(name: str) -> int:
    """Return the number at the end of a name; -1 where there is none."""
    match = re.search(r"(\d+)$", name)
    return int(match[1]) if match else -1
