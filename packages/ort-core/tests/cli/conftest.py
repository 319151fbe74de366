"""Small models on disk and a caller of the command line."""

import json
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from ort_core.cli.app import build_app
from ort_core.onnx_io.save import save_model
from ort_core.testing.models import model_of

MODELS = {
    "small": """g (float[N, 4] x) => (float[N, 2] y)
        <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}>
        { a = Relu(x) b = Identity(a) y = MatMul(b, w) }""",
    "tokens": """g (int64[batch, sequence] input_ids, int64[batch, total_sequence] attention_mask,
           int64[batch, sequence] position_ids, float[batch, 2, past_sequence, 3] past)
           => (float[a, b, 2] y, int64 n, float[c, 2, d, 3] p)
        <float[7, 2] table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}>
        { y = Gather(table, input_ids) n = ReduceSum<keepdims = 0>(attention_mask)
          p = Identity(past) m = Identity(position_ids) }""",
    "branch": """g (float[N] x, bool flag) => (float[N] y)
        { y = If (flag) <
            then_branch = t () => (float[N] t) { t = Neg(x) },
            else_branch = e () => (float[N] e) { u = Abs(x) e = Sqrt(u) }
          > }""",
    "words": "g (string[N] text) => (string[N] same) { same = Identity(text) }",
    "sound": """g (float[?, ?] sound) => (float[?, ?] y) <int64[4] pads = {0, 40, 0, 40}>
        { y = Pad<mode = "reflect">(sound, pads) }""",
    "failing": """g (float[N, 3] x) => (float[2, 2] y) <int64[2] shape = {2, 2}> { y = Reshape(x, shape) }""",
}  # fmt: skip


class Result:
    """What a call printed and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def data(self):
        return json.loads(self.out)


@pytest.fixture
def model_path(tmp_path) -> Callable[[str], str]:
    def write(name: str) -> str:
        path = tmp_path / f"{name}.onnx"
        if not path.exists():
            save_model(model_of(MODELS[name]), path)
        return str(path)

    return write


@pytest.fixture
def ort(monkeypatch) -> Callable[..., Result]:
    monkeypatch.setenv("COLUMNS", "200")
    app = build_app()

    def call(*arguments: object) -> Result:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="ort")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Result(result.exit_code, result.stdout, result.stderr)

    return call
