"""The rules of the repository that no linter knows: what may be named where, and how large a file may grow."""

from __future__ import annotations

import ast
import functools
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "packages/ort-core/src/ort_core"
EXAMPLES = ROOT / "examples"
MAXIMUM_LINES = 800  # most files have 150 to 300; one near 800 wants a redesign
EP_NAME = re.compile(
    r"\b(\w*cuda\w*|\w*tensorrt\w*|\w*openvino\w*|\w*coreml\w*|\w*directml\w*|\w*rocm\w*|\w*webgpu\w*"
    r"|CPUExecutionProvider|ReferenceExecutionProvider|ort_core\.cpu)\b",
    re.IGNORECASE,
)


@functools.cache
def committed_files() -> list[Path]:
    """Return the files that git tracks or would track, or all source files outside a git checkout."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("the rules are about committed files, and this is no git checkout")
    return [ROOT / name for name in listed if (ROOT / name).is_file()]


@functools.cache
def text_of(path: Path) -> str:
    """Return the text of a file, or nothing for a binary file."""
    content = path.read_bytes()
    return "" if b"\0" in content else content.decode("utf-8")


def places(paths: list[Path], pattern: re.Pattern[str]) -> list[str]:
    """Return ``file:line: text`` for every line that matches."""
    return [
        f"{path.relative_to(ROOT).as_posix()}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if pattern.search(line)
    ]


def test_the_root_holds_what_a_newcomer_looks_for_and_nothing_that_a_tool_left() -> None:
    at_root = {path.name for path in committed_files() if path.parent == ROOT}
    known = {
        ".gitattributes", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md",
        "conftest.py", "mkdocs.yml", "noxfile.py", "pyproject.toml",
    }  # fmt: skip
    assert not at_root - known


def test_no_file_but_the_ci_script_names_the_folder_of_external_data() -> None:
    elsewhere = [path for path in committed_files() if path != ROOT / ".ci/run"]
    found = places(elsewhere, re.compile(r"\.\./" + "shared"))
    assert not found, "external data is found through ORT_TEST_DATA:\n" + "\n".join(found)


def test_no_file_names_a_path_of_one_machine() -> None:
    machine = re.compile(r"(?<![\w.])/(?:" + "work|home|root|Users|tmp/pytest-of" + r")/\w|\b[A-Z]:\\Users\\")
    found = places(committed_files(), machine)
    assert not found, "a committed file holds a path of one machine:\n" + "\n".join(found)


@pytest.mark.parametrize("layer", ["runtime", "partitioning", "memory", "session.py"])
def test_no_execution_provider_is_named_in(layer: str) -> None:
    place = CORE / layer
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    found = places(files, EP_NAME)
    assert not found, f"{layer} must treat all execution providers alike:\n" + "\n".join(found)


def test_no_source_file_is_too_long() -> None:
    lengths = {p.relative_to(ROOT).as_posix(): len(text_of(p).splitlines()) for p in committed_files()}
    long = {name: lines for name, lines in lengths.items() if name.endswith(".py") and lines > MAXIMUM_LINES}
    assert not long, f"files of more than {MAXIMUM_LINES} lines hold more than one idea: {long}"


def first_docstring(source: str) -> str:
    """Return the text that a source file begins with, ``""`` where it begins otherwise; the rest is not parsed."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE):
            text = ast.literal_eval(token.string) if token.type == tokenize.STRING else ""
            return text if isinstance(text, str) else ""
    return ""


def test_every_source_file_starts_with_its_idea() -> None:
    sources = [path for path in committed_files() if path.suffix == ".py" and text_of(path).strip()]
    mute = [p.relative_to(ROOT).as_posix() for p in sources if not first_docstring(text_of(p))]
    assert not mute, f"the first docstring line of a file is its one idea; these have none: {mute}"


def test_no_module_is_named_after_nothing_in_particular() -> None:
    vague = {"utils", "util", "helper", "helpers", "manager", "misc", "common"}
    found = [
        p.relative_to(ROOT).as_posix()
        for p in committed_files()
        if p.suffix == ".py" and vague & {p.stem, p.parent.name}
    ]
    assert not found, f"name the thing or the action instead: {found}"


def test_no_binary_file_is_committed_but_the_examples() -> None:
    listed = (path for path in committed_files() if EXAMPLES not in path.parents)
    binary = [path.relative_to(ROOT).as_posix() for path in listed if b"\0" in path.read_bytes()]
    assert not binary, f"models, arrays and what tools leave behind are made by tests, not kept: {binary}"


def test_every_hook_is_documented() -> None:
    specifications = CORE / "providers/hookspecs.py"
    if not specifications.exists():
        pytest.skip("the hook specifications are not written yet")
    hooks = [
        node
        for node in ast.walk(ast.parse(text_of(specifications)))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("ort_")
    ]
    assert hooks, "the hook specifications define no hook"
    mute = [hook.name for hook in hooks if len((ast.get_docstring(hook) or "").splitlines()) < 3]
    assert not mute, f"a hook's docstring says when it is called, what it returns, and shows an example: {mute}"


LINT_IGNORE = re.compile(r"#\s*(noqa(:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*)?|type:\s*ignore(\[[\w, -]*\])?)(?P<reason>.*)$")


@pytest.mark.parametrize(
    ("line", "has_reason"),
    [
        ("x = 1  # noqa: A001 - onnxruntime's own name for it", True),
        ("x = 1  # noqa: A001, E501", False),
        ("x = 1  # type: ignore[arg-type]", False),
        ("x = 1  # type: ignore[arg-type]  # the kind says that it is a Graph", True),
    ],
)
def test_a_reason_is_recognized_after_an_ignore(line: str, has_reason: bool) -> None:
    assert bool(re.search(r"[a-z]{2}", LINT_IGNORE.search(line)["reason"])) is has_reason


def test_every_lint_ignore_has_a_reason() -> None:
    bare = []
    for path in committed_files():
        for number, line in enumerate(text_of(path).splitlines(), 1) if path.suffix == ".py" else ():
            match = LINT_IGNORE.search(line)
            if match and not re.search(r"[a-z]{2}", match["reason"]):
                bare.append(f"{path.relative_to(ROOT).as_posix()}:{number}: {line.strip()}")
    assert not bare, "an ignore says why on the same line:\n" + "\n".join(bare)


def test_every_rule_that_is_switched_off_for_all_has_a_reason() -> None:
    tooling = text_of(ROOT / "pyproject.toml")
    switched_off = re.search(r"^ignore = \[\n(.*?)^\]", tooling, re.DOTALL | re.MULTILINE)[1].splitlines()
    assert all(re.search(r"#.*[a-z]{2}", line) for line in switched_off), switched_off


def existing_modules() -> set[str]:
    """Return the names of the modules and packages directly inside ort_core."""
    folders = {path.parent.name for path in CORE.glob("*/__init__.py")}
    return folders | {path.stem for path in CORE.glob("*.py")} - {"__init__", "__main__"}


def contract(identifier: str) -> dict[str, list[str]]:
    """Return one import-linter contract of pyproject.toml."""
    tooling = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    return next(found for found in tooling["importlinter"]["contracts"] if found["id"] == identifier)


def test_the_layer_contract_calls_no_existing_module_unwritten() -> None:
    unwritten = {name for layer in contract("layers")["layers"] for name in re.findall(r"\((\w+)\)", layer)}
    landed = sorted(unwritten & existing_modules())
    assert not landed, f"take the parentheses from these layers in pyproject.toml: {landed}"


def test_the_license_of_every_package_is_that_of_the_repository() -> None:
    ours = text_of(ROOT / "LICENSE")
    for package in (*ROOT.glob("packages/*/pyproject.toml"), ROOT / "conformance/pyproject.toml"):
        assert text_of(package.parent / "LICENSE") == ours, f"{package.parent.name}/LICENSE differs from LICENSE"


def test_only_the_standard_library_is_imported_by_the_bootstrap() -> None:
    tree = ast.parse(text_of(ROOT / "tools/bootstrap.py"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names


def test_the_architecture_lists_every_layer_in_order() -> None:
    table = text_of(ROOT / "docs/architecture.md").split("## The stages")[0]
    described = [set(re.findall(r"`(\w+)`", row)) for row in re.findall(r"^\| (`[\w`, ]+`) \|", table, re.MULTILINE)]
    assert described == [set(re.findall(r"\w+", layer)) for layer in contract("layers")["layers"]]


def test_every_development_task_is_described_to_contributors() -> None:
    sessions = {
        node.name
        for node in ast.parse(text_of(ROOT / "noxfile.py")).body
        if isinstance(node, ast.FunctionDef) and node.decorator_list
    }
    described = set(re.findall(r"^\| `(\w+)` \|", text_of(ROOT / "CONTRIBUTING.md"), re.MULTILINE))
    assert described == sessions


def test_the_readme_starts_with_the_two_commands() -> None:
    first_screen = "\n".join(text_of(ROOT / "README.md").splitlines()[:24])
    commands = re.findall(r"^    python (\S+) (\w+)", first_screen, re.MULTILINE)
    assert commands == [("tools/bootstrap.py", "demo"), ("tools/bootstrap.py", "test")]


OTHER_SPELLING = re.compile(r"\w{2,}(?:is|ys)(?:e|ed|er|ers|es|ing|ation|ations|able)")
NEVER_WITH_Z = re.compile(
    r"\w*(?:wise|wised)|(?:un)?(?:dis)?abl\w+|disabl\w+|(?:ap|com|im|super|tele|tree)?(?:pris|prais)\w+"
    r"|(?:a|up|sun)?ris(?:e|es|er|ing)|(?:un|up)?rais(?:e|ed|er|es|ing|able)"
    r"|(?:ad|m?ad|de|re|pro?|im?pro|super)vis\w+|(?:com)?promis\w+|(?:im)?precis\w+|premis\w+|concis\w+|demis\w+"
    r"|(?:de)?nois(?:e|es|er|ers|ed|ing)|exercis\w+|expertis\w+|comprises?|compris\w+|surpris\w+|enterpris\w+|franchis\w+"
    r"|merchandis\w+|paradise|treatise|advertis\w+|(?:dis)?guis\w+|bruis\w+|cruis\w+|pois(?:e|ed|es)|chais\w*|analyses"
)
"""Words that American spelling writes with an s, too: the s belongs to their root, not to an ending."""
OTHER_ENDINGS = re.compile(r"\w*(?:neighbo|colo|favo|behavio|hono|labo|armo)ur\w*|(?:bary|epi)?cent(?:re|res|red|ring)")
A_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")  # also within names: isNormal, is_normal, IS_NORMAL


def british_words(text: str) -> set[str]:
    """Return the words of a text with -ise, -yse, -our or -re where this repository has -ize, -yze, -or and -er."""
    words = {word.lower() for word in A_WORD.findall(text)}
    found = {word for word in words if OTHER_SPELLING.fullmatch(word) and not NEVER_WITH_Z.fullmatch(word)}
    return found | {word for word in words if OTHER_ENDINGS.fullmatch(word)}


RECORDS = {ROOT / "docs/support_matrix.md", ROOT / "docs/support_matrix_reasons.html"}
"""What one command wrote of a run that takes hours, in the words of that day: edited by nobody."""


def test_words_have_american_spelling() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): sorted(words)
        for path in committed_files()
        if (words := british_words(f"{path.relative_to(ROOT)} {text_of(path)}")) and path != Path(__file__).resolve()
        if path not in RECORDS
    }
    assert not found, f"American spelling, in names, too: {found}"


@pytest.mark.parametrize(
    "word",
    [
        "quantise",
        "is_normalised",
        "LEGALISATION",
        "DequantisedMatMul",
        "analyser",
        "tokenising",
        "_neighbours",
        "CENTRED",
        "colours",
    ],
)
def test_the_other_spelling_is_found_within_names(word: str) -> None:
    assert british_words(f"the {word} of it")


@pytest.mark.parametrize(
    "text",
    [
        "raises",
        "is_elementwise",
        "disable",
        "precise",
        "PendingElementwise",
        "noise",
        "advise",
        "four",
        "center",
        "hours",
    ],
)
def test_words_whose_root_ends_in_s_stay_as_they_are(text: str) -> None:
    assert not british_words(text)


def test_helpers_of_tests_have_names_of_their_own() -> None:
    """Folders of tests are on the path of imports together: of two helpers of one name a run imports one."""
    names: dict[str, list[str]] = {}
    for path in committed_files():
        if path.suffix == ".py" and path.parent.name == "tests" and not path.name.startswith(("test_", "conftest")):
            names.setdefault(path.name, []).append(path.parent.relative_to(ROOT).as_posix())
    assert not {name: folders for name, folders in names.items() if len(folders) > 1 and name != "__init__.py"}


def test_every_border_lets_errors_of_signal_handlers_pass() -> None:
    """What catches any exception and does not raise it again must hand a program its own interruptions."""
    shown_to_a_user = {"cli/failures.py", "cli/measuring/bench_worker.py"}
    in_threads_of_its_own = {"session_api/running.py"}  # handlers run in the main thread only
    lacking = []
    for path in sorted(CORE.rglob("*.py")):
        name = path.relative_to(CORE).as_posix()
        if name in shown_to_a_user | in_threads_of_its_own:
            continue
        for each in ast.walk(ast.parse(text_of(path))):
            if not isinstance(each, ast.ExceptHandler) or not _catches_all(each):
                continue
            steps = list(ast.walk(ast.Module(each.body, [])))
            raises_again = any(isinstance(step, ast.Raise) and step.exc is None for step in steps)
            asks = any(isinstance(step, ast.Name) and step.id == "raise_interruption" for step in steps)
            if not raises_again and not asks:
                lacking.append(f"{name}:{each.lineno}")
    assert not lacking, "call ort_core.interruptions.raise_interruption first"


def _catches_all(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException") for kind in kinds)


def test_every_program_of_the_packages_ends_in_order() -> None:
    """A signal must not leave halves of files behind, and the code that it gives is one."""
    named = re.compile(r'^if __name__ == "__main__":$', re.MULTILINE)
    sources = [path for path in committed_files() if path.suffix == ".py" and "src" in path.relative_to(ROOT).parts]
    programs = [path for path in sources if named.search(text_of(path)) and not path.is_relative_to(CORE)]
    assert len(programs) > 20
    lacking = [str(path) for path in programs if "run_program(" not in named.split(text_of(path))[-1]]
    assert not lacking, "call ort_core.cli.interrupts.run_program"
