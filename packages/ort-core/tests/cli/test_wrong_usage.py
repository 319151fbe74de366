"""What is answered to commands that cannot be done: what is wrong and what to do, code 2 for usage, nothing written."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from ort_core.cli.commands import doctor
from ort_core.onnx_io.save import save_model
from ort_core.plugin import ExecutionProvider, Rejection
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import plugin_of
from ort_core.testing.models import model_of

RELU = "g (float[2] x) => (float[2] y) { y = Relu(x) }"


@pytest.fixture
def model(tmp_path):
    save_model(model_of(RELU), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def words(result):
    return " ".join(result.err.replace("│", " ").split())


@pytest.mark.parametrize(
    ("command", "arguments", "expected"),
    [
        ("run", ["-p", "cpu:presicion=bfloat16"], "Did you mean 'precision'?"),
        ("run", ["--disable", "ConvBNFusin"], "Did you mean 'ConvBNFusion'"),
        ("run", ["--disable", "Nothing"], "`ort optimize --list` shows all"),
        ("optimize", ["--enable", "Nothing"], "no optimizer pass is called 'Nothing'"),
        ("run", ["--ops", "missing.py"], "there is no file 'missing.py'"),
        ("compare", ["--provider-b", "cpuu"], "--provider-b: no provider is called 'cpuu'. Did you mean 'cpu'?"),
        ("run", ["--config", "session.trust_compild_code=1"], "Did you mean 'session.trust_compiled_code'"),
        ("explain", ["--config", "session.trust_compiled_code"], "write KEY=VALUE"),
        ("optimize", ["--allow", "0.1"], "--allow: it has no effect without --check"),
        ("optimize", ["--dim", "N=3"], "--dim: it has no effect without --check"),
        ("optimize", ["--external-data", "w.bin"], "--external-data: it has no effect without OUTPUT"),
        ("bench", ["--rounds", "9"], "--rounds: it has no effect without --against"),
        ("explain", ["--html", "missing/page.html"], "the folder 'missing' does not exist"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_to_do(ort, model, command, arguments, expected):
    result = ort(command, model, *arguments)
    assert result.code == 2
    assert expected in words(result)
    assert len(result.err) < 1000, "a user reads a few lines"


@pytest.mark.parametrize(
    ("arguments", "empty"),
    [
        (["run", ""], "an argument is empty"),
        (["optimize", "m.onnx", ""], "an argument is empty"),
        (["compile", "m.onnx", "--external-data", ""], "--external-data is empty"),
        (["compile", "m.onnx", "--kernel="], "--kernel is empty"),
        (["extract", "m.onnx", "cut", "--node", ""], "--node is empty"),
        (["run", "m.onnx", "--disable", ""], "--disable is empty"),
    ],
)
def test_an_empty_argument_is_refused_and_not_taken_for_the_current_folder(ort, model, monkeypatch, arguments, empty):
    monkeypatch.chdir(model.parent)
    result = ort(*arguments)
    assert result.code == 2
    assert empty in words(result)
    assert [file.name for file in model.parent.iterdir()] == ["m.onnx"], "nothing was written"


def test_a_plugins_command_refuses_empty_arguments_as_ours_do(ort):
    from ort_core.cli.command_class import find_empty
    from ort_core.cli.plugin_commands import _as_command

    def shown(model: str) -> None:
        raise AssertionError(model)

    command = _as_command("shown", shown)
    with pytest.raises(Exception, match="an argument is empty"):
        command.main(["show", ""], standalone_mode=False)
    assert find_empty(["a", "--name=x", "--flag", "b"]) is None


OVERWRITING = [
    ("optimize",), ("compile", "-o"), ("compile", "--emit", "llvm", "-o"), ("explain", "--html"), ("profile", "--html"),
    ("profile", "--trace"),
]  # fmt: skip


@pytest.mark.parametrize("command", OVERWRITING, ids=" ".join)
def test_a_model_is_never_overwritten(ort, model, command):
    before = model.read_bytes()
    result = ort(command[0], model, *command[1:], model)
    assert result.code == 2
    assert "would overwrite the model" in words(result)
    assert model.read_bytes() == before


def test_a_model_is_not_overwritten_by_a_part_of_it(ort, model):
    model = model.rename(model.with_name("model.onnx"))
    before = model.read_bytes()
    result = ort("extract", model, model.parent, "--node", "y", "--force")
    assert result.code == 2
    assert "would overwrite the model" in words(result)
    assert model.read_bytes() == before


WRITING = [
    ("optimize", "o.onnx"), ("compile", "-o", "o.onnx"), ("optimize", "w.data"), ("explain", "--html", "w.data"),
]  # fmt: skip


@pytest.mark.parametrize("command", WRITING, ids=" ".join)
@pytest.mark.parametrize("is_attribute", [False, True])
def test_the_weights_of_a_model_are_never_overwritten(ort, tmp_path, monkeypatch, command, is_attribute):
    monkeypatch.chdir(tmp_path)
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {RELU}')
    tensor = numpy_helper.from_array(np.ones((3, 3), np.float32), "w")
    if is_attribute:
        proto.graph.node.add(op_type="Constant", output=["w"]).attribute.add(name="value", type=4).t.CopyFrom(tensor)
    else:
        proto.graph.initializer.append(tensor)
    proto.graph.output.add(name="w")
    onnx.save_model(
        proto, "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0, convert_attribute=True
    )
    before = Path("w.data").read_bytes()
    beside = () if "w.data" in command else ("--external-data", "w.data")
    result = ort(command[0], "m.onnx", *command[1:], *beside)
    assert result.code, result.out
    assert "cannot be written" in words(result), words(result)
    assert Path("w.data").read_bytes() == before


@pytest.mark.parametrize("command", [("run", "-o"), ("optimize",), ("explain", "--html"), ("profile", "--trace")])
def test_a_folder_that_takes_no_file_is_told_before_the_work(ort, model, tmp_path, monkeypatch, command):
    folder = tmp_path / "closed"
    folder.mkdir()
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(folder) and real(path, mode))
    result = ort(command[0], model, *command[1:], folder / "out.npz")
    assert result.code == 2
    assert "cannot be written to" in words(result)
    assert not list(folder.iterdir())


def test_a_folder_in_place_of_a_file_is_refused(ort, model, tmp_path):
    (tmp_path / "out.onnx").mkdir()
    assert "is a folder; name a file" in words(ort("optimize", model, tmp_path / "out.onnx"))


def test_a_folder_without_a_model_and_one_with_several_are_told_apart(ort, model, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "has no .onnx file" in words(ort("run", tmp_path / "empty"))
    save_model(model_of(RELU), tmp_path / "n.onnx")
    assert "name one of them: m.onnx, n.onnx" in words(ort("run", tmp_path))


def test_an_error_of_the_system_names_the_file_and_no_number(ort, model, tmp_path):
    (tmp_path / "folder").write_text("a file", encoding="utf-8")
    result = ort("extract", model, tmp_path / "folder" / "part", "--node", "y")
    assert result.code == 1
    assert "Errno" not in result.err
    assert any(text in result.err for text in ("Not a directory", "cannot find", "already exists"))  # Windows: the last


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:12\n", "git lfs pull"),
        (b"PK\x03\x04" + bytes(40), "zip archive"),
        (b"\x1c\x00\x00\x00TFL3" + bytes(40), "TensorFlow Lite"),
        (b"\x1f\x8b" + bytes(40), "unpack it"),
        (b"GGUF" + bytes(40), "GGUF"),
        (b"\x08" + bytes(7) + b'{"w":{}}', "safetensors"),
        (b"\x80\x02\x8a\nl" + bytes(40), "pickle"),
        (b"<!DOCTYPE html><html></html>", "the download gave something else"),
        (b"\xff" * 50, "Its 50 bytes are no ONNX model, or only a part of one."),
    ],
)
def test_what_stands_where_a_model_was_named_is_told(ort, tmp_path, content, expected):
    (tmp_path / "bad.onnx").write_bytes(content)
    result = ort("inspect", tmp_path / "bad.onnx")
    assert result.code == 1
    assert expected in result.err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes that have a name")
def test_a_link_to_nothing_and_a_pipe_are_told_from_files_that_are_missing(ort, tmp_path):
    (tmp_path / "link.onnx").symlink_to("gone.onnx")
    os.mkfifo(tmp_path / "pipe.onnx")
    expected = {"link.onnx": "is a link to 'gone.onnx', which does not exist", "pipe.onnx": "not a regular file"}
    for name, text in expected.items():
        result = ort("inspect", tmp_path / name)
        assert result.code == 2
        assert text.replace(" ", "") in words(result).replace(" ", "")


def test_a_stream_that_is_closed_or_knows_ascii_alone_ends_no_command(model):
    command = [sys.executable, "-m", "ort_core.cli", "run", str(model)]
    ascii_alone = {**os.environ, "PYTHONIOENCODING": "ascii:strict", "PYTHONUTF8": "0"}
    done = subprocess.run([*command, "--shape", "x=2"], capture_output=True, env=ascii_alone, check=False)
    assert (done.returncode, done.stderr.count(b"unexpected")) == (0, 0)
    locale = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}  # its streams are not strict
    done = subprocess.run([*command, "--shape", "x=2", "--first", "1"], capture_output=True, env=locale, check=False)
    assert (done.returncode, done.stderr.count(b"unexpected")) == (0, 0)
    closed = "import os, sys; os.close(1); os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run([sys.executable, "-c", closed, *command], stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr.count(b"unexpected")) == (0, 0)


def test_a_run_names_only_the_providers_that_ran_nodes(ort, model):
    result = ort("run", model, "-p", "reference", "-p", "cpu")
    assert result.out.rstrip().endswith("on ReferenceExecutionProvider")
    assert ort("run", model, "-p", "reference", "-p", "cpu", "--json").data["providers"] == [
        "ReferenceExecutionProvider"
    ]


class IdleExecutionProvider(ExecutionProvider):
    """Takes no node."""

    name = "IdleExecutionProvider"

    def get_capability(self, view):
        return [Rejection("it rests", node) for node in view.nodes]

    def compile(self, request):
        raise AssertionError("there is nothing to compile")


@pytest.mark.parametrize("command", ["run", "bench"])
def test_a_wanted_provider_that_runs_no_node_is_told(ort, model, command):
    with installed(plugin_of(IdleExecutionProvider)):
        result = ort(command, model, "-p", "idle", *(["-n", "2"] if command == "bench" else []))
    assert result.code == 0, result.err
    assert "note: IdleExecutionProvider runs no node of this model; `ort explain`" in result.err
    assert "on CPUExecutionProvider" in " ".join(result.out.split())
    assert "IdleExecutionProvider" not in result.out


def test_doctor_reports_a_cache_that_cannot_be_written(ort, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path / "file" / "cache"))
    result = ort("doctor")
    assert result.code == 1
    assert "every process compiles its models anew" in result.out
    assert doctor._problems({**_sound(), "cache": {"path": "p", "is_writable": True}}) == []


def _sound():
    return {
        "versions": dict.fromkeys(doctor._REQUIRED, "1"), "plugins": [],
        "providers": [{"is_available": True, "is_listed": True}],
    }  # fmt: skip
