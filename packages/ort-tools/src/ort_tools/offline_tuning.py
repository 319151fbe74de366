"""Tuning results inside of models: taken out, put in, merged, shown; onnxruntime.tools.offline_tuning's names.

    python -m ort_tools.offline_tuning embed tuned.onnx model.onnx results.json

The results are those of onnxruntime's GPU providers (``session.get_tuning_results()``). The CPU provider here chooses
its kernels without them.
"""

from __future__ import annotations

import argparse
import json
import pprint as printing
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto

from ort_core.cli.interrupts import run_program
from ort_core.model_graphs import write_proto
from ort_core.whole_files import replace_text

TuningResults = dict[str, Any]

_KEY = "tuning_results"


def extract(model: ModelProto) -> list[TuningResults] | None:
    """Return the results that a model carries, ``None`` where it has none."""
    text = next((each.value for each in model.metadata_props if each.key == _KEY), None)
    return None if text is None else list(json.loads(text))


def embed(model: ModelProto, tuning_results: list[TuningResults], overwrite: bool = False) -> ModelProto:
    """Put results into a model, which is changed and returned.

    Raises:
        AssertionError: it has some, and they are not to be replaced.
    """
    old = [each for each in model.metadata_props if each.key == _KEY]
    if old and not overwrite:
        raise AssertionError("the supplied onnx file already have tuning results embedded!")
    for each in old:
        model.metadata_props.remove(each)
    model.metadata_props.add(key=_KEY, value=json.dumps(tuning_results))
    return model


class Merger:
    """Collects results; of two for one provider, its validators, operator and parameters the first stays."""

    class EpAndValidators:
        """A provider and what its results hold for."""

        def __init__(self, ep: str, validators: dict[str, str]) -> None:
            self.ep, self.validators = ep, dict(validators)
            self.key = (ep, tuple(sorted(validators.items())))

        def __hash__(self) -> int:
            return hash(self.key)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Merger.EpAndValidators) and self.key == other.key

    def __init__(self) -> None:
        self.ev_to_results: dict[Merger.EpAndValidators, dict[tuple[str, str], int]] = {}

    def merge(self, tuning_results: list[TuningResults]) -> None:
        """Take over what is not known yet."""
        for each in tuning_results:
            known = self.ev_to_results.setdefault(Merger.EpAndValidators(each["ep"], each["validators"]), {})
            for operator, kernels in each["results"].items():
                for parameters, kernel in kernels.items():
                    known.setdefault((operator, parameters), kernel)

    def get_merged(self) -> list[TuningResults]:
        """Return what was collected, one entry for each provider and its validators."""
        merged = []
        for owner, known in self.ev_to_results.items():
            results: dict[str, dict[str, int]] = {}
            for (operator, parameters), kernel in known.items():
                results.setdefault(operator, {})[parameters] = kernel
            merged.append({"ep": owner.ep, "validators": owner.validators, "results": results})
        return merged


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="cmd", required=True, help="what to do")
    take = commands.add_parser("extract", help="take the results out of a model")
    take.add_argument("input_onnx")
    take.add_argument("output_json")
    put = commands.add_parser("embed", help="put results into a model")
    put.add_argument("--force", "-f", action="store_true", help="replace those that it has")
    put.add_argument("output_onnx", help="the file to write")
    put.add_argument("input_onnx", help="the model")
    put.add_argument("input_json", nargs="+", help="files of results")
    merge = commands.add_parser("merge", help="make one file of several")
    merge.add_argument("output_json", help="the file to write")
    merge.add_argument("input_json", nargs="+", help="files of results")
    show = commands.add_parser("pprint", help="show results")
    show.add_argument("json_or_onnx", help="a file of results, or a model")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the command line asks for."""
    args = parse_args(arguments)
    if args.cmd == "extract":
        _write(args.output_json, _carried(args.input_onnx))
    elif args.cmd == "pprint":
        printing.pprint(_read_any(args.json_or_onnx))  # noqa: T203 - showing is what this does
    else:
        merger = Merger()
        for name in args.input_json:
            merger.merge(json.loads(Path(name).read_text(encoding="utf-8")))
        if args.cmd == "merge":
            _write(args.output_json, merger.get_merged())
        else:
            write_proto(embed(onnx.load(args.input_onnx), merger.get_merged(), args.force), args.output_onnx)


def _carried(name: str) -> list[TuningResults]:
    found = extract(onnx.load(name))
    if found is None:
        sys.stderr.write(f"{name} does not have tuning results embedded!\n")
        sys.exit(-1)
    return found


def _read_any(name: str) -> list[TuningResults]:
    try:
        return list(json.loads(Path(name).read_text(encoding="utf-8")))
    except ValueError:  # then it is a model
        try:
            return _carried(name)
        except DecodeError:
            sys.stderr.write(f"{name} is not a valid tuning results file or onnx file!\n")
            sys.exit(-1)


def _write(name: str, results: list[TuningResults]) -> None:
    replace_text(Path(name), json.dumps(results))


if __name__ == "__main__":
    run_program(main)
