"""`ort batch`: rows of every kind of file, failures, and jobs taken up again."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from serve_fixtures import DOUBLER, write_model
from typer.testing import CliRunner

from ort_core.errors import Fail
from ort_serve.batch.joining import JoiningState
from ort_serve.batch.parts import Parts
from ort_serve.batch.rows import read_rows
from ort_serve.failures import InvalidRequest
from ort_serve.protocol.datatypes import DATATYPES
from ort_serve.repository.signature import ModelSignature, TensorSignature

IMAGE = """
<ir_version: 10, opset_import: ["" : 21]>
means (float[batch, 3, 8, 8] pixels) => (float[batch] mean) {
  axes = Constant <value_ints = [1, 2, 3]> ()
  mean = ReduceMean <keepdims = 0> (pixels, axes)
}
"""

MIXING = """
<ir_version: 10, opset_import: ["" : 21]>
scaled (float[batch, 4] x) => (float[batch, 4] y) {
  most = ReduceMax <keepdims = 0> (x)
  y = Div (x, most)
}
"""
ODD_ROWS = """
<ir_version: 10, opset_import: ["" : 21]>
some (int64[batch, 1] x) => (int64[batch, 1] y) {
  axis = Constant <value_ints = [1]> ()
  flat = Squeeze (x, axis)
  is_some = Cast <to = 9> (flat)
  y = Compress <axis = 0> (x, is_some)
}
"""


@pytest.fixture
def model(tmp_path):
    return write_model(DOUBLER, tmp_path / "doubler.onnx")


def run(*arguments: object) -> object:
    import typer

    from ort_serve.commands.batch import batch

    app = typer.Typer()
    app.command()(batch)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


ROWS = np.arange(40, dtype=np.float32).reshape(10, 4)


def write_rows(path) -> None:
    kind = path.suffix
    if kind == ".jsonl":
        path.write_text("".join(json.dumps({"x": row.tolist()}) + "\n" for row in ROWS))
    elif kind == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([f"x[{column}]" for column in range(4)])
            writer.writerows(ROWS.tolist())
    elif kind == ".npz":
        np.savez(path, x=ROWS)
    else:
        pyarrow.parquet.write_table(pyarrow.table({"x": ROWS.tolist()}), path, row_group_size=3)


@pytest.mark.parametrize("kind", [".jsonl", ".csv", ".npz", ".parquet"])
@pytest.mark.parametrize("target", [".jsonl", ".parquet"])
def test_rows_of_every_kind_give_the_results_of_a_session(model, tmp_path, kind, target):
    source, output = tmp_path / f"rows{kind}", tmp_path / f"out{target}"
    write_rows(source)
    result = run(model, source, output, "--batch-size", 4, "--part-rows", 3)
    assert result.exit_code == 0, result.output
    found = lines(output) if target == ".jsonl" else pyarrow.parquet.read_table(output).to_pylist()
    assert [row["row"] for row in found] == list(range(10))
    np.testing.assert_array_equal([row["y"] for row in found], 2 * ROWS)
    np.testing.assert_array_equal([row["total"] for row in found], ROWS.sum(axis=1))
    assert not (tmp_path / f"out{target}.parts").exists()
    assert "10 rows" in result.output


def test_rows_that_fail_are_set_aside_with_the_reason(model, tmp_path):
    source, output = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    source.write_text(
        '{"x": [1, 2, 3, 4]}\nnot json\n{"x": [1, 2]}\n{"y": 3, "z": 4}\n[5, 6, 7, 8]\n{"x": ["a", 1, 2, 3]}\n'
    )
    result = run(model, source, output)
    assert result.exit_code == 0, result.output
    assert [row["row"] for row in lines(output)] == [0, 4]
    failures = {row["row"]: row["reason"] for row in lines(tmp_path / "out.failed.jsonl")}
    assert sorted(failures) == [1, 2, 3, 5]
    assert "not JSON" in failures[1]
    assert "4 failed" in result.output


def test_a_folder_of_images_is_read_in_order(tmp_path):
    from PIL import Image

    model = write_model(IMAGE, tmp_path / "means.onnx")
    folder = tmp_path / "images"
    folder.mkdir()
    for place, grey in enumerate((0, 128, 255)):
        Image.new("RGB", (20, 10), (grey, grey, grey)).save(folder / f"{place}.png")
    (folder / "3.png").write_bytes(b"no image")
    result = run(model, folder, tmp_path / "out.jsonl")
    assert result.exit_code == 0, result.output
    np.testing.assert_allclose([row["mean"] for row in lines(tmp_path / "out.jsonl")], [0, 128 / 255, 1], atol=1e-6)
    assert lines(tmp_path / "out.failed.jsonl")[0]["row"] == 3


@pytest.mark.parametrize("rows", [ROWS, np.arange(10, dtype=np.float32)[:, None].repeat(4, 1)])
def test_rows_of_a_model_that_mixes_them_are_run_alone(tmp_path, caplog, rows):
    model = write_model(MIXING, tmp_path / "mixing.onnx")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"x": row.tolist()}) + "\n" for row in rows + 1))
    result = run(model, tmp_path / "rows.jsonl", tmp_path / "out.jsonl", "--batch-size", 4)
    assert result.exit_code == 0, result.output
    alone = (rows + 1) / (rows + 1).max(axis=1, keepdims=True)
    np.testing.assert_allclose([row["y"] for row in lines(tmp_path / "out.jsonl")], alone, rtol=1e-6)
    assert caplog.messages == ["each row is run alone: output 'y' of a row depends on the rows beside it"]


def test_rows_are_run_alone_while_too_few_give_results_to_try_them_on(tmp_path):
    calls = []

    class Counted:
        def run(self, names, feeds):
            calls.append(len(feeds["x"]))
            if feeds["x"].min() < 0:
                raise Fail("negative")
            return [feeds["x"]]

    x = TensorSignature("x", DATATYPES["FP32"], ("N", 1))
    joining = JoiningState(Counted(), ModelSignature((x,), (x,), True, ""), 8)
    bad, good = {"x": np.full((1, 1), -1, np.float32)}, {"x": np.ones((1, 1), np.float32)}
    assert joining.rows_at_once([bad, bad, good]) == 1
    assert joining.rows_at_once([bad, good, good]) == 8
    tried = len(calls)
    assert joining.rows_at_once([bad, bad]) == 8
    assert len(calls) == tried


@pytest.mark.parametrize("batch", [1, 4])
def test_a_result_with_other_rows_than_the_input_is_a_failure(tmp_path, batch):
    model = write_model(ODD_ROWS, tmp_path / "odd.onnx")
    (tmp_path / "rows.jsonl").write_text('{"x": [1]}\n{"x": [0]}\n{"x": [5]}\n')
    result = run(model, tmp_path / "rows.jsonl", tmp_path / "out.jsonl", "--batch-size", batch)
    assert result.exit_code == 0, result.output
    assert [row["row"] for row in lines(tmp_path / "out.jsonl")] == [0, 2]
    (failure,) = lines(tmp_path / "out.failed.jsonl")
    assert failure == {"row": 1, "reason": "output 'y' has shape [0, 1] for a batch of 1 rows"}


def test_two_processes_of_one_job_never_write_less_than_all(tmp_path):
    first, second = (Parts(tmp_path / "out.jsonl", {"of": "one"}) for _ in range(2))
    for number in range(3):
        first.write(number, [{"row": number}], [])
    assert first.join() == (3, 0)
    for act in (second.join, lambda: second.write(3, [{"row": 3}], [])):
        with pytest.raises(InvalidRequest, match="another process ran the same job"):
            act()
    assert [row["row"] for row in lines(tmp_path / "out.jsonl")] == [0, 1, 2]
    assert [each.name for each in tmp_path.iterdir()] == ["out.jsonl"]


def test_parts_are_seen_all_or_none_while_they_are_deleted(tmp_path, monkeypatch):
    first, second = (Parts(tmp_path / "out.jsonl", {"of": "one"}) for _ in range(2))
    for number in range(3):
        first.write(number, [{"row": number}], [])
    rmtree, seen = shutil.rmtree, []

    def deleted(folder):
        (folder / "part-00000001.jsonl").unlink()
        with pytest.raises(InvalidRequest, match="another process"):
            seen.append(second.join())
        rmtree(folder)

    monkeypatch.setattr(shutil, "rmtree", deleted)
    first.join()
    assert not seen
    assert len(lines(tmp_path / "out.jsonl")) == 3


def test_an_empty_source_gives_an_empty_output(model, tmp_path):
    (tmp_path / "rows.jsonl").write_text("")
    assert run(model, tmp_path / "rows.jsonl", tmp_path / "out.jsonl").exit_code == 0
    assert (tmp_path / "out.jsonl").read_text() == ""


@pytest.mark.parametrize(
    ("source", "output", "expected"),
    [("rows.txt", "out.jsonl", "rows are read from"), ("rows.jsonl", "out.xlsx", "written as")],
)
def test_other_kinds_of_files_are_refused(model, tmp_path, source, output, expected):
    (tmp_path / source).write_text("x")
    result = run(model, tmp_path / source, tmp_path / output)
    assert result.exit_code == 1
    assert expected in result.output


def test_parts_of_another_job_are_not_mixed(model, tmp_path):
    source, output = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    write_rows(source)
    parts = tmp_path / "out.jsonl.parts"
    parts.mkdir()
    (parts / "job.json").write_text('{"model": "another"}')
    (parts / "part-00000000.jsonl").write_text("")
    result = run(model, source, output)
    assert result.exit_code == 1
    assert "--restart" in result.output
    assert run(model, source, output, "--restart").exit_code == 0


def test_a_job_that_failed_before_its_first_part_is_in_nobody_s_way(model, tmp_path):
    source, output, broken = tmp_path / "rows.jsonl", tmp_path / "out.jsonl", tmp_path / "broken.onnx"
    write_rows(source)
    broken.write_bytes(b"junk")
    assert run(broken, source, output).exit_code != 0
    assert run(model, source, output).exit_code == 0


@pytest.mark.skipif(os.name == "nt", reason="kills a process as POSIX does")
def test_a_job_that_was_killed_gives_each_row_once(model, tmp_path):
    source, output = tmp_path / "rows.jsonl", tmp_path / "out.parquet"
    source.write_text("".join(json.dumps({"x": [row, 0, 0, 0]}) + "\n" for row in range(20_000)))
    command = [
        sys.executable,
        "-m",
        "ort_core.cli",
        "batch",
        str(model),
        str(source),
        str(output),
        "--part-rows",
        "500",
    ]
    parts = tmp_path / "out.parquet.parts"
    kills = 0
    for wanted in (2, 6, 12):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and len(list(parts.glob("part-*.parquet"))) < wanted:
            time.sleep(0.002)
        if process.poll() is None:
            process.kill()
            kills += 1
        process.wait()
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert kills > 0
    assert "of them from before" in finished.stdout
    found = pyarrow.parquet.read_table(output)
    assert found["row"].to_pylist() == list(range(20_000))
    assert found["total"].to_pylist() == list(range(20_000))


def test_an_index_of_pandas_and_odd_rows_of_csv_are_read_or_told(tmp_path):
    model = write_model(DOUBLER, tmp_path / "doubler.onnx")
    long = "[" + ", ".join(["0"] * 200_000) + "]"
    (tmp_path / "rows.csv").write_text(
        f",x[0],x[1],x[2],x[3],other\n0,1,2,3,4,a\n1,1,2,3,4,a,too,many\n2,5,6,7,8,{chr(34)}{long}{chr(34)}\n"
    )
    found = run(model, tmp_path / "rows.csv", tmp_path / "out.jsonl")
    assert found.exit_code == 0, found.output
    assert [(row["row"], row["total"]) for row in lines(tmp_path / "out.jsonl")] == [(0, 10.0), (2, 26.0)]
    assert "2 fields stand behind" in lines(tmp_path / "out.failed.jsonl")[0]["reason"]


def test_a_source_that_is_no_text_is_told_in_one_line(tmp_path):
    model = write_model(DOUBLER, tmp_path / "doubler.onnx")
    for name, content in (("a.csv", b"x[0]\n\xff\xfe\n"), ("a.jsonl", b"\xff\n"), ("a.npz", b"PK no archive")):
        (tmp_path / name).write_bytes(content)
        found = run(model, tmp_path / name, tmp_path / f"{name}.jsonl")
        assert found.exit_code == 1
        assert "cannot be read" in found.output


def test_rows_of_archives_are_read_one_by_one(tmp_path):
    columns = np.asfortranarray(ROWS)
    for name, arrays in (
        ("c", {"x": ROWS}),
        ("fortran", {"x": columns}),
        ("texts", {"x": ROWS, "t": np.array(["é"] * 10)}),
    ):
        for save in (np.savez, np.savez_compressed):
            save(tmp_path / f"{name}.npz", **arrays)
            for start in (0, 7, 10):
                read = list(read_rows(tmp_path / f"{name}.npz", start))
                assert len(read) == 10 - start
                assert all(np.array_equal(row["x"], expected) for row, expected in zip(read, ROWS[start:]))
    np.savez(tmp_path / "uneven.npz", a=ROWS, b=ROWS[:3])
    with pytest.raises(InvalidRequest, match="lengths"):
        next(read_rows(tmp_path / "uneven.npz", 0))
