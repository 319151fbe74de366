"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ort_core.onnx_io.save import save_model
from ort_core.testing.models import model_of
from ort_core.whole_files import replace_file, replace_text, written_whole


class Stop(BaseException):
    """As an interrupt is: no error."""


def test_a_file_stays_what_it_was_when_the_new_one_is_not_whole(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")

    def write_half() -> None:
        with written_whole(path) as place:
            place.write_text("half of")
            assert path.read_text() == "old"
            raise Stop

    with pytest.raises(Stop):
        write_half()
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


def test_threads_that_write_one_file_do_not_meet_in_its_half(tmp_path):
    path, both = tmp_path / "page.html", threading.Barrier(2, timeout=30)

    def write(content: str) -> None:
        with written_whole(path) as place:
            place.write_text(content)
            both.wait()
            assert place.read_text() == content

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(write, ("one", "other"))) == [None, None]
    assert path.read_text() in ("one", "other")
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_link_stays_one(tmp_path):
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "page.html", tmp_path / "link.html"
    target.write_text("old")
    link.symlink_to(target)
    replace_file(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_pipe_is_written_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    replace_file(pipe, b"whole")
    reader.join(30)
    assert found == [b"whole"]
    assert pipe.is_fifo()


@pytest.mark.parametrize("name", ["a" * 255, "\N{GREEK SMALL LETTER ALPHA}" * 127])
def test_the_longest_names_can_be_written(tmp_path, name):
    replace_file(tmp_path / name, b"x")
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_what_is_no_unicode_ends_no_page(tmp_path):
    replace_text(tmp_path / "page.html", "caf\udce9.onnx")
    assert (tmp_path / "page.html").read_bytes() == b"caf?.onnx"


@pytest.mark.parametrize("command", [("explain", "--html"), ("profile", "--html"), ("profile", "--trace")])
def test_pages_and_traces_of_commands_stay_when_the_disk_is_full(tmp_path, monkeypatch, command):
    from typer.testing import CliRunner

    from ort_core.cli.app import build_app

    save_model(model_of("g (float[2] x) => (float[2] y) { y = Relu(x) }"), tmp_path / "m.onnx")
    path = tmp_path / "page"
    path.write_text("old")

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("pathlib.Path.replace", full)
    result = CliRunner().invoke(build_app(), [command[0], str(tmp_path / "m.onnx"), command[1], str(path)])
    assert (result.exit_code, path.read_text()) == (1, "old"), result.output
    assert sorted(each.name for each in tmp_path.iterdir()) == ["m.onnx", "page"]
