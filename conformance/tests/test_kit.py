"""The kit: what ``ort new-ep`` writes is complete, is the committed example, and conforms at once."""

from __future__ import annotations

import doctest
import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ort_conformance.commands.new_ep import new_ep
from ort_conformance.provider_run import FILES, ProfileError, find_profile
from ort_conformance.template.writing import Form, PackageNames, package_files, write_package
from ort_core.cli.app import build_app

EXAMPLE = Path(__file__).parents[2] / "examples/ort-ep-template"
MAXIMUM_LINES = 260  # of Python outside tests: what a vendor reads before the first change


def test_committed_example_is_what_the_command_writes():
    written = package_files(PackageNames.of("template"), Form.COMPILING)
    names = [path.relative_to(EXAMPLE).as_posix() for path in EXAMPLE.rglob("*") if path.is_file()]
    kept = {name: (EXAMPLE / name).read_text(encoding="utf-8") for name in names if "__pycache__" not in name}
    assert kept == written, "run `ort new-ep template --folder examples` after a change of the template"


@pytest.mark.parametrize("form", Form)
def test_package_has_its_vendors_names_only(form):
    files = package_files(PackageNames.of("acme-npu"), form)
    assert {"src/ort_ep_acme_npu/plugin.py", "src/ort_ep_acme_npu/py.typed", "pyproject.toml"} <= files.keys()
    left = {name for name, text in files.items() if "template" in (name + text).lower()}
    assert not left
    assert 'acme-npu = "ort_ep_acme_npu.plugin"' in files["pyproject.toml"]


@pytest.mark.parametrize("form", Form)
def test_package_is_small(form):
    files = package_files(PackageNames.of("acme"), form)
    lines = sum(text.count("\n") for name, text in files.items() if name.startswith("src/"))
    assert lines <= MAXIMUM_LINES


@pytest.mark.parametrize("name", ["", "9lives", "a/b", "näher", "-"])
def test_name_that_is_no_module_is_refused(name):
    with pytest.raises(ValueError, match="not a name for a package"):
        PackageNames.of(name)


@pytest.mark.slow
@pytest.mark.usefixtures("kept_node_cases")
@pytest.mark.parametrize("form", Form)
def test_new_package_conforms_at_once(form, tmp_path, install):
    names = PackageNames.of("fresh")
    write_package(names, form, tmp_path / "package")
    site = Path(install("fresh_plugin_facts", "ORT_PLUGIN_API = (2, 0)\n") and sys.path[0])
    shutil.copytree(tmp_path / "package/src" / names.module, site / names.module)
    facts = site / "ort_ep_fresh-0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: ort-ep-fresh\nVersion: 0.1\n", encoding="utf-8")
    (facts / "entry_points.txt").write_text(f"[ort.plugins]\nfresh = {names.module}.plugin\n", encoding="utf-8")
    tests = tmp_path / "package/tests/test_conformance.py"
    options = ["--provider", names.provider, "--profile", str(tests), "--share", "0.004"]
    options += ["--report", str(tmp_path / "out")]
    run = subprocess.run(
        [sys.executable, "-m", "ort_core.cli", "conformance", *options], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{names.provider}: conformant" in run.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "report.json", "junit.xml", "support_matrix.md", "support_matrix_reasons.html",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("cpuu", "Did you mean 'cpu'?"),
        ("AbsentExecutionProvider", "no provider is called 'AbsentExecutionProvider'"),
        ("qnn", "QNNExecutionProvider: it is not installed: no known package"),
    ],
)
def test_a_provider_that_is_not_there_is_refused_before_any_check(capsys, provider, expected):
    with pytest.raises(SystemExit) as ended:
        build_app()(["conformance", "--provider", provider], prog_name="ort")
    assert ended.value.code == 2
    assert expected in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_provider_may_be_named_in_short_and_the_reports_are_named(capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        build_app()(
            ["conformance", "-p", "reference", "--suite", "contract", "--report", str(tmp_path)], prog_name="ort"
        )
    printed = capsys.readouterr()
    assert ended.value.code == 0, printed.out + printed.err
    assert "ReferenceExecutionProvider: conformant" in printed.out
    assert f"reports: {tmp_path / 'support_matrix_reasons.html'}" in printed.out
    assert {path.name for path in tmp_path.iterdir()} == FILES
    assert all(name in printed.out for name in FILES)


@pytest.mark.parametrize(("name", "why"), [("absent.py", "there is no file"), ("notes.txt", "is not a Python file")])
def test_a_profile_that_cannot_be_read_is_refused_with_what_is_wrong(tmp_path, name, why):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ProfileError, match=why):
        find_profile("ReferenceExecutionProvider", tmp_path / name)


@pytest.mark.parametrize("module", ["ort_conformance.profile", "ort_conformance.template.writing"])
def test_examples_in_docstrings_hold(module):
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted > 0
    assert results.failed == 0


def test_command_says_how_to_go_on(tmp_path, capsys):
    new_ep("acme", Form.COMPILING, tmp_path)
    said = capsys.readouterr().out
    assert f"cd {tmp_path / 'ort-ep-acme'}" in said
    assert "--provider AcmeExecutionProvider --profile tests/test_conformance.py" in said
    assert (tmp_path / "ort-ep-acme/tests/test_conformance.py").is_file()


def test_command_does_not_overwrite_a_folder(tmp_path):
    (tmp_path / "ort-ep-acme").mkdir()
    run = subprocess.run(
        [sys.executable, "-m", "ort_core.cli", "new-ep", "acme", "--folder", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 2
    assert "exists already" in run.stderr
