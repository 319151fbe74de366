"""The command as a process: entry, exit codes, interrupts, plugins, and what it costs to start."""

import os
import signal
import subprocess
import sys
import types

import pytest

from ort_core import __version__
from ort_core import environment as environments
from ort_core.cli import plugin_commands
from ort_core.environment import Environment
from ort_core.onnx_io.save import save_model
from ort_core.providers.discovery import PluginSource
from ort_core.testing.models import model_of

ENDLESS = """g (float[64, 64] x) => (float[64, 64] y) <int64 n = {1000000000}, bool on = {1}>
    { y = Loop (n, on, x) <
        body = b (int64 i, bool go, float[64, 64] s) => (bool again, float[64, 64] t)
            { again = Identity(go) t = MatMul(s, s) }
      > }"""
ORT = (sys.executable, "-m", "ort_core.cli")


def call(*arguments, **keywords):
    return subprocess.run([*ORT, *map(str, arguments)], capture_output=True, text=True, timeout=250, **keywords)


def test_version_and_help_are_printed_without_loading_onnx_or_numpy_when_no_plugin_may_bring_commands():
    assert call("--version").stdout == f"ort-core {__version__}\n"
    code = (
        "import sys; from typer.testing import CliRunner; from ort_core.cli.app import build_app; "
        "from ort_core.cli import plugin_commands; plugin_commands.has_foreign_plugins = lambda: False; "
        "result = CliRunner().invoke(build_app(), ['--help']); "
        "heavy = {'onnx', 'numpy', 'ml_dtypes', 'psutil', 'ort_core.environment'} & set(sys.modules); "
        "assert result.exit_code == 0 and not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=250)


def test_no_command_shows_help_and_a_wrong_one_suggests():
    assert "Commands" in call().stdout + call().stderr
    wrong = call("rnu")
    assert wrong.returncode == 2
    assert "run" in wrong.stderr


def test_json_output_is_pure_when_stderr_has_warnings(tmp_path):
    save_model(model_of("g (float[2] x) => (float[2] y) { y = Relu(x) }"), tmp_path / "m.onnx")
    result = call("run", tmp_path / "m.onnx", "-p", "coreml", "-p", "cpu", "--json")
    assert result.returncode == 0
    assert result.stdout.startswith("{")
    assert result.stdout.endswith("}\n")
    assert "warning" in result.stderr
    assert "\x1b" not in result.stdout + result.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is always full")
@pytest.mark.parametrize(
    "arguments", [("--version",), ("--help",), ("inspect",), ("inspect", "--json"), ("cache", "path")]
)
def test_output_that_cannot_be_written_is_one_error(tmp_path, arguments):
    save_model(model_of("g (float[2] x) => (float[2] y) { y = Relu(x) }"), tmp_path / "m.onnx")
    command = [*arguments, tmp_path / "m.onnx"] if arguments[0] == "inspect" else arguments
    with open("/dev/full", "w") as full:
        done = subprocess.run([*ORT, *map(str, command)], stdout=full, stderr=subprocess.PIPE, text=True, timeout=250)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert done.stderr.startswith("error: ")
    assert "No space left on device" in done.stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pipes whose readers are gone")
@pytest.mark.parametrize(
    "arguments", [("--version",), ("--help",), ("inspect",), ("inspect", "--json"), ("cache", "path")]
)
def test_a_reader_that_has_gone_is_told_nothing(tmp_path, arguments):
    save_model(model_of("g (float[2] x) => (float[2] y) { y = Relu(x) }"), tmp_path / "m.onnx")
    command = [*arguments, tmp_path / "m.onnx"] if arguments[0] == "inspect" else arguments
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([*ORT, *map(str, command)], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=250)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


SAYS_THAT_IT_RUNS = """
import itertools
from ort_core.cli import app
from ort_core.runtime.limits import LimitGuard

check, number = LimitGuard.check, itertools.count()

def checked(guard):
    if next(number) == 1000:  # inside of the loop
        print("runs", flush=True)
    check(guard)

LimitGuard.check = checked
app.main()
"""


SIGNALS = [name for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no signals for one process")
@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_ends_a_run_quietly_with_its_code(tmp_path, name):
    save_model(model_of(ENDLESS), tmp_path / "endless.onnx")
    command = [sys.executable, "-c", SAYS_THAT_IT_RUNS, "run", tmp_path / "endless.onnx"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, preexec_fn=_heed_signals) as process:
        try:
            assert process.stdout.readline() == b"runs\n", process.stderr.read()
            process.send_signal(getattr(signal, name))
            _, err = process.communicate(timeout=250)
        finally:
            process.kill()
    assert _shown_by_a_shell(process.returncode) == 128 + getattr(signal, name), err
    assert b"Traceback" not in err


INTERRUPTED_IMPORT = """
import signal, sys
from importlib.abc import MetaPathFinder

class Interrupting(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "typer":
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
from ort_core.cli.__main__ import main
main()
"""


def test_an_interrupt_while_the_command_is_imported_is_quiet():
    command = [sys.executable, "-c", INTERRUPTED_IMPORT]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert (_shown_by_a_shell(ended.returncode), ended.stdout + ended.stderr) == (130, "")


WRITES_HALF = """
import signal, sys
from pathlib import Path
from ort_core.cli import app
from ort_core.whole_files import written_whole

def command():
    with written_whole(Path(sys.argv[1])) as place:
        place.write_text("half of")
        signal.raise_signal(getattr(signal, sys.argv[2]))

app.build_app = lambda: lambda prog_name: command()
app.main()
"""


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_leaves_no_half_of_a_file(tmp_path, name):
    path = tmp_path / "page.html"
    path.write_text("old")
    command = [sys.executable, "-c", WRITES_HALF, str(path), name]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=250, **_heeds())
    assert _shown_by_a_shell(ended.returncode) == 128 + getattr(signal, name), ended.stderr
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("page.html", "old")]


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no such signal")
def test_a_signal_that_is_ignored_stays_so(tmp_path):
    (tmp_path / "page.html").write_text("old")
    command = [sys.executable, "-c", WRITES_HALF, str(tmp_path / "page.html"), "SIGHUP"]
    ended = subprocess.run(command, timeout=250, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert (ended.returncode, (tmp_path / "page.html").read_text()) == (0, "half of")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no signals for one process")
@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_where_no_exception_can_leave_ends_the_command_all_the_same(name):
    code = f"""
import os, signal, time, weakref
from ort_core.cli import app

class Referent: pass

def command():
    referent = Referent()
    reference = weakref.ref(referent, lambda _: os.kill(os.getpid(), signal.{name}))
    del referent
    time.sleep(3000)

app.build_app = lambda: lambda prog_name: command()
app.main()
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=250, preexec_fn=_heed_signals
    )
    assert _shown_by_a_shell(ended.returncode) == 128 + getattr(signal, name), ended.stderr
    assert ended.stderr == ""


def _shown_by_a_shell(returncode):
    """Return what ``$?`` says. Python ends by the signal itself where the interrupt came through an ``exec``."""
    return 128 - returncode if returncode < 0 else returncode


def _heed_signals():
    """Undo what a shell does to jobs in the background: they ignore signals, and so do their children."""
    for name in SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_DFL)


def _heeds():
    return {} if os.name == "nt" else {"preexec_fn": _heed_signals}  # Windows has no such function


def hello() -> None:
    """Say hello."""
    sys.stdout.write("hello from a plugin\n")


@pytest.fixture
def plugin(monkeypatch):
    module = types.ModuleType("greeting_plugin")
    module.ORT_PLUGIN_API = (2, 0)
    module.ort_cli_commands = lambda: {"hello": hello, "run": hello, "broken": 3}
    environment = Environment(lambda: [PluginSource("greeting", "greeting", module)])
    monkeypatch.setattr(environments, "_default", environment)
    monkeypatch.setattr(plugin_commands, "has_foreign_plugins", lambda: True)


def test_plugins_bring_subcommands_that_are_listed_and_run(ort, plugin):
    assert ort("hello").out == "hello from a plugin\n"
    listed = ort("--help")
    assert "Say hello." in listed.out
    assert "left out" in listed.err


def test_a_plugin_cannot_replace_a_built_in_command(ort, plugin):
    assert "Run a model once" in ort("run", "--help").out
