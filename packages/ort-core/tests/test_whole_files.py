"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ort_core.errors import Fail
from ort_core.onnx_io.load import load_model
from ort_core.onnx_io.save import save_model
from ort_core.testing.models import model_of
from ort_core.whole_files import move_whole, replace_file, replace_text, written_whole

WEIGHTED = "g (float[N, 2] x) => (float[N, 2] y) <float[2, 2] w = {%s, 2, 3, 4}> { y = MatMul(x, w) }"


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


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_the_new_file_has_the_permissions_of_the_former(tmp_path, mode):
    path = tmp_path / "page.html"
    path.write_text("old")
    path.chmod(mode)
    replace_file(path, b"new")
    assert path.stat().st_mode & 0o777 == mode


def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("old")
    monkeypatch.setattr(os, "access", lambda place, mode: (place, mode) != (path, os.W_OK))  # root may write all
    with pytest.raises(PermissionError) as refused:
        replace_file(path, b"new")
    assert (refused.value.filename, path.read_text()) == (str(path), "old")


def test_a_failure_names_the_file_as_it_was_given(tmp_path):
    path = tmp_path / "missing" / "page.html"
    with pytest.raises(FileNotFoundError) as failure:
        replace_file(path, b"new")
    assert (failure.value.filename, failure.value.filename2) == (str(path), None)
    assert str(failure.value).endswith(f"No such file or directory: {str(path)!r}")


def test_names_that_begin_alike_do_not_meet_in_one_half(tmp_path):
    first, second = tmp_path / f"{'a' * 60}.onnx", tmp_path / f"{'a' * 60}.onnx.data"
    with written_whole(first) as place, written_whole(second) as other:
        place.write_text("model")
        other.write_text("weights")
    assert (first.read_text(), second.read_text()) == ("model", "weights")


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_file_that_is_moved_keeps_the_link_in_its_place(tmp_path):
    made, target, link = tmp_path / "made", tmp_path / "real", tmp_path / "link"
    made.write_text("new")
    target.write_text("old")
    link.symlink_to(target)
    move_whole(made, link)
    assert link.is_symlink()
    assert (target.read_text(), made.exists()) == ("new", False)


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="this system has no such device")
def test_a_device_is_written_and_not_moved_over(tmp_path):
    (tmp_path / "made").write_text("new")
    device = tmp_path / "device"
    device.symlink_to("/dev/null")
    move_whole(tmp_path / "made", device)
    assert device.is_char_device()


def failing(write, start: str):
    """Return what writes no file whose name begins so."""

    def call(place, *arguments, **named):
        if place.name.startswith(start):
            raise OSError(28, "No space left on device", str(place))
        return write(place, *arguments, **named)

    return call


@pytest.mark.parametrize("fails_at", ["m.onnx", "m.onnx.data"])
def test_a_model_and_its_weights_stay_what_they_were_when_one_of_them_cannot_be_written(
    tmp_path, monkeypatch, fails_at
):
    path = tmp_path / "m.onnx"
    save_model(model_of(WEIGHTED % 1), path, external_file="m.onnx.data", external_threshold=1)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    for method in ("open", "write_bytes"):
        monkeypatch.setattr(f"pathlib.Path.{method}", failing(getattr(type(path), method), f"{fails_at}.partial"))
    with pytest.raises(Fail, match="No space left"):
        save_model(model_of(WEIGHTED % 9), path, external_file="m.onnx.data", external_threshold=1)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_a_model_may_be_written_over_the_files_that_its_weights_are_mapped_from(tmp_path):
    path = tmp_path / "m.onnx"
    save_model(model_of(WEIGHTED % 7), path, external_file="m.onnx.data", external_threshold=1)
    save_model(load_model(path), path, external_file="m.onnx.data", external_threshold=1)
    (weight,) = load_model(path).graph.initializers
    assert weight.constant.array().tolist() == [[7, 2], [3, 4]]


def test_a_model_and_its_weights_are_never_one_file(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"old")
    with pytest.raises(Fail, match="two files are needed"):
        save_model(model_of(WEIGHTED % 1), path, external_file="m.onnx", external_threshold=1)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("m.onnx", b"old")]


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
