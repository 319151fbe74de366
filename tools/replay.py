"""Write digests of everything that models become, before and after a change that should change none of it.

    python tools/replay.py write before.json [--models FOLDER ...] [--cases PATTERN] [--sections NAME ...]
                                             [--level TARGET] [--jobs N]
    python tools/replay.py compare before.json after.json

For each model file of the folders, and each of ONNX's node cases: the types that inference finds, the LLVM text, steps
and packed weights of each native program (at a fixed target, for two threads), what providers claim and refuse, with
their reasons, and the programs that they write for claims. For node cases the results of the numpy kernels, too, to
the bit. No device is needed, nothing is compiled. ``--texts FOLDER`` also keeps what was digested, for diff.

What fails is kept apart, with the error's words: how many did is told each time, and a comparison in which other ones
failed is red. Nothing that cannot be imported is ever a result: that ends the run.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import logging
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from ort_conformance.case import Case, DataSet
from ort_conformance.suites.backend_cases import node_cases

NO_DATA = DataSet({}, ())
Section = Callable[["Subject"], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Subject:
    """A model by its path, or a node case by its name."""

    name: str
    path: str = ""

    @property
    def source(self) -> object:
        """What models are loaded from."""
        return self.path or _cases()[self.name].model()


def types(subject: Subject) -> Iterator[str]:
    """What inference finds."""
    from ort_core.testing.claims import typed_model

    for node in typed_model(subject.source).graph:
        yield f"{node.op_type} {[str(value.type) for value in node.present_outputs()]}"


def cpu(subject: Subject) -> Iterator[str]:
    """Kernels, steps and weights of all native programs, in the order in which they are built."""
    yield from _programs(subject.source, Path(subject.path).parent if subject.path else None)


def weighted(subject: Subject) -> Iterator[str]:
    """The same of a case of which all inputs but the first are weights, which is what most operators compile with."""
    if not subject.path and (given := _with_weights(_cases()[subject.name])) is not None:
        yield from _programs(given, None)


def _programs(source: object, folder: Path | None) -> Iterator[str]:
    from native_texts import recorded_programs
    from ort_core.environment import default_environment
    from ort_core.onnx_io.load import load_model
    from ort_core.options import SessionOptions
    from ort_core.stages import prepare

    options = SessionOptions()
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.optimized_model_cache", "0")
    model, providers = load_model(source), [("CPUExecutionProvider", {})]  # type: ignore[arg-type]  # as Subject says
    with recorded_programs() as found:
        prepared = prepare(model, options, default_environment(), providers, folder=folder)
    yield from found
    yield f"{len(prepared.plan.steps)} steps"


def _with_weights(case: Case) -> onnx.ModelProto | None:
    feeds = dict(next(case.data_sets(), NO_DATA).feeds)
    fixed = {name: value for name, value in [*feeds.items()][1:] if isinstance(value, np.ndarray)}
    if not fixed or any(value.dtype == object for value in fixed.values()):
        return None
    model = onnx.ModelProto()
    model.CopyFrom(case.model())  # type: ignore[arg-type]  # node cases are no paths
    kept = [each for each in model.graph.input if each.name not in fixed]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in fixed.items())
    return model


def claims(subject: Subject) -> Iterator[str]:
    """Claims and refusals of the providers that answer without a device, and the programs that they write."""
    from ort_core.testing.claims import typed_model
    from provider_texts import provider_texts

    yield from provider_texts(typed_model(subject.source))


def numbers(subject: Subject) -> Iterator[str]:
    """The results of the numpy kernels for a case's own inputs."""
    import ort_core

    if subject.path or _cases()[subject.name].unjudged:
        return
    model = subject.source.SerializeToString()  # type: ignore[attr-defined]  # of a node case it is a ModelProto
    session = ort_core.InferenceSession(model, providers=["ReferenceExecutionProvider"])
    for case in _cases()[subject.name].data_sets():
        for result in session.run(None, dict(case.feeds)):
            yield _text_of(result)


def _text_of(result: object) -> str:
    if isinstance(result, np.ndarray) and result.dtype != object:
        return f"{result.dtype} {result.shape} {hashlib.sha256(result.tobytes()).hexdigest()}"
    return repr(result)


SECTIONS: tuple[Section, ...] = (types, cpu, weighted, claims, numbers)


@functools.cache
def _cases() -> dict[str, Case]:
    found = [case for is_ml in (False, True) for case in node_cases(is_ml=is_ml)]
    return {case.name: case for case in found if "@" not in case.name}  # each once, at its own opset


@dataclass(slots=True)
class Found:
    """Digests by section and subject, and of those that ended in an error its words."""

    digests: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, other: Found) -> None:
        """Take in what another share of the work found."""
        self.digests.update(other.digests)
        self.failed.update(other.failed)


def note(subject: Subject, section: Section, found: Found, texts: Path | None) -> None:
    """Add the digest of a section of a subject, or the error that stands in its place.

    Raises:
        ImportError: something that the section needs is not installed, or is broken.
    """
    name = f"{section.__name__} {subject.name}"
    lines = []
    try:
        lines += section(subject)
    except ImportError as error:
        raise ImportError(f"{name} was not digested: {error}") from error
    except Exception as error:  # noqa: BLE001 - what is refused before must be refused behind, in the same words
        found.failed[name] = f"{type(error).__name__}: {error}"
        lines.append(found.failed[name])
    if lines:
        text = "\n".join(lines)
        found.digests[name] = hashlib.sha256(text.encode()).hexdigest()[:24]
        if texts is not None:
            (texts / f"{name.replace('/', '_').replace(' ', '-')}.txt").write_text(text, encoding="utf-8")


def work_on(share: tuple[list[Subject], list[str], Path | None]) -> Found:
    """Return what the chosen sections of several subjects give."""
    logging.disable()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    found = Found()
    for subject in share[0]:
        for section in SECTIONS:
            if section.__name__ in share[1]:
                note(subject, section, found, share[2])
    return found


def subjects(folders: Iterable[Path], pattern: str) -> list[Subject]:
    """Return the model files of the folders, and the node cases of a pattern."""
    files = [(folder, path) for folder in folders for path in sorted(folder.rglob("*.onnx"))]
    models = [Subject(str(path.relative_to(folder)), str(path)) for folder, path in files]
    return models + [Subject(name) for name in sorted(_cases()) if fnmatchcase(name, pattern)]


def write(arguments: argparse.Namespace) -> int:
    """Write the digests of all subjects."""
    os.environ.update(ORT_CPU_TARGET=arguments.level, ORT_STRICT_COMPILATION="1")
    if arguments.texts is not None:
        arguments.texts.mkdir(parents=True, exist_ok=True)
    chosen = subjects(arguments.models, arguments.cases)
    sections = arguments.sections or [each.__name__ for each in SECTIONS]
    shares = [(chosen[start : start + 40], sections, arguments.texts) for start in range(0, len(chosen), 40)]
    found = Found()
    if arguments.jobs == 1:
        for share in shares:
            found.add(work_on(share))
    else:
        with ProcessPoolExecutor(arguments.jobs) as pool:
            for each in pool.map(work_on, shares):
                found.add(each)
    arguments.file.write_text(json.dumps(asdict(found), indent=0, sort_keys=True), encoding="utf-8")
    sys.stdout.write(f"{len(found.digests)} digests of {len(chosen)} models, {len(found.failed)} of them of errors\n")
    kinds = Counter(text.partition(":")[0] for text in found.failed.values())
    sys.stdout.writelines(f"  {count} {kind}\n" for kind, count in kinds.most_common())
    return 0


def compare(arguments: argparse.Namespace) -> int:
    """Print what differs; return 1 where anything does, or where other ones failed."""
    before, after = (
        Found(**json.loads(each.read_text(encoding="utf-8"))) for each in (arguments.before, arguments.after)
    )
    names = before.digests.keys() | after.digests.keys()
    differing = sorted(name for name in names if before.digests.get(name) != after.digests.get(name))
    for name in differing:
        what = "new" if name not in before.digests else "gone" if name not in after.digests else "differs"
        sys.stdout.write(f"{what}: {name}\n")
    for name in sorted(before.failed.keys() ^ after.failed.keys()):
        text, when = (before.failed[name], "before") if name in before.failed else (after.failed[name], "behind")
        sys.stdout.write(f"failed only {when}: {name}: {text}\n")
    failures = f"{len(before.failed)} failed before, {len(after.failed)} behind"
    sys.stdout.write(f"{len(differing)} of {len(names)} digests differ; {failures}\n")
    return 1 if differing or before.failed.keys() != after.failed.keys() or not names else 0


def main() -> int:
    """Do what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    writing = verbs.add_parser("write")
    writing.add_argument("file", type=Path)
    writing.add_argument("--models", type=Path, action="append", default=[], help="a folder of models, searched whole")
    writing.add_argument("--cases", default="*", help="which node cases, * for any text; '' for none")
    writing.add_argument("--sections", action="append", choices=[each.__name__ for each in SECTIONS], help="not all")
    writing.add_argument("--level", default="x86-64-v3", help="what code is written for, as in ORT_CPU_TARGET")
    writing.add_argument("--texts", type=Path, help="a folder for what is digested")
    writing.add_argument("--jobs", type=int, default=1)
    writing.set_defaults(do=write)
    comparing = verbs.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.set_defaults(do=compare)
    arguments = parser.parse_args()
    return int(arguments.do(arguments))


if __name__ == "__main__":
    sys.exit(main())
