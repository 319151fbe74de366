"""The real cuDNN checks our graphs for an H200, the real cuBLASLt our descriptors: no GPU and no driver is needed.

The libraries are a gigabyte: ``nox -s cudnn`` installs them. Where they are not, these tests are skipped, and say so.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from driver_stubs import build_stubs
from fake_cublas_lt import RECORD

HERE = Path(__file__).parent
PACKAGES = {"cudnn": "nvidia-cudnn-frontend", "nvmath": "nvmath-python", "nvidia.cudnn": "nvidia-cudnn-cu13"}
TYPES = ("float", "float16", "bfloat16")
FUSED = ("gelu", "clip", "sigmoid", "tanh")


def _missing() -> list[str]:
    def is_there(name: str) -> bool:
        try:
            return importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            return False

    return [package for name, package in PACKAGES.items() if not is_there(name)]


# The session that installs the libraries demands them: it must not pass by skipping.
pytestmark = pytest.mark.skipif(
    bool(_missing()) and "ORT_TEST_CUDNN" not in os.environ, reason=f"{', '.join(_missing())}: nox -s cudnn installs it"
)


def _library_folders() -> list[str]:
    import nvidia

    return [str(place) for root in nvidia.__path__ for place in Path(root).glob("*/lib")]


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> dict[str, dict]:
    """What the libraries say of each step, asked in a process that finds a stub for the driver."""
    variables = build_stubs(tmp_path_factory.mktemp("stubs"))
    variables["LD_LIBRARY_PATH"] = os.pathsep.join([variables["LD_LIBRARY_PATH"], *_library_folders()])
    done = subprocess.run(
        [sys.executable, str(HERE / "ask_libraries.py")],
        capture_output=True, text=True, check=False, env={**os.environ, **variables},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {row.get("name", "versions"): row for row in rows}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", ["bias ", "bias relu", "plain", "plain tf32", "depthwise", "transposed"])
@pytest.mark.parametrize("lies", ["first", "last"])
def test_convolutions_with_a_bias_and_relu_are_supported_in_both_layouts(answers, dtype, kind, lies) -> None:
    row = answers[f"convolution {dtype} {lies} {kind}"]
    assert row["reason"] is None
    assert row["plans"] > 0


@pytest.mark.parametrize("dtype", TYPES[1:])
@pytest.mark.parametrize("kind", ["residual relu", *(f"bias {kind}" for kind in FUSED)])
def test_convolutions_of_16_bits_fuse_more_with_their_channels_last(answers, dtype, kind) -> None:
    assert answers[f"convolution {dtype} last {kind}"]["reason"] is None


@pytest.mark.parametrize("dtype", TYPES[1:])
@pytest.mark.parametrize("kind", ["residual relu", "bias gelu"])
def test_the_librarys_check_declines_what_it_cannot_run(answers, dtype, kind) -> None:
    assert "no engine" in answers[f"convolution {dtype} first {kind}"]["reason"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("space", ["one axis", "three axes"])
def test_other_numbers_of_axes_are_supported(answers, dtype, space) -> None:
    assert answers[f"convolution {dtype} of {space}"]["reason"] is None


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", ["layer", "rms", "instance", "instance of one axis"])
def test_normalizations_are_supported(answers, dtype, kind) -> None:
    row = answers[f"{kind} normalization {dtype}"]
    assert row["reason"] is None
    assert row["plans"] > 0


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", ["gelu", "sigmoid", "tanh"])
def test_products_fuse_every_activation_but_in_exact_float32(answers, dtype, kind) -> None:
    assert answers[f"product {dtype} {kind} tf32"]["reason"] is None
    reason = answers[f"product {dtype} {kind}"]["reason"]
    assert (reason is None) == (dtype != "float"), reason


@pytest.mark.parametrize("kind", ["64", "bias"])
def test_attention_of_float32_is_supported_with_tf32_only(answers, kind) -> None:
    assert "No execution plans" in answers[f"attention float {kind}"]["reason"]
    assert answers[f"attention float {'tf32' if kind == '64' else 'bias tf32'}"]["reason"] is None


@pytest.mark.parametrize("dtype", TYPES[1:])
@pytest.mark.parametrize("kind", ["64", "128", "causal", "bias", "shared heads"])
def test_attention_of_16_bits_is_supported(answers, dtype, kind) -> None:
    assert answers[f"attention {dtype} {kind}"]["reason"] is None


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", ["0", "1", "2", "turned"])
def test_the_real_cublaslt_takes_every_attribute_of_our_descriptors(answers, dtype, kind) -> None:
    reason = answers[f"product {dtype} {kind}"]["reason"]
    assert reason == "cuBLASLt has no algorithm for this product and its epilogue", "its heuristics need a device"


def test_records_of_heuristics_are_as_long_as_those_that_the_made_up_library_writes(answers) -> None:
    assert answers["versions"]["versions"]["record"] == np.dtype(RECORD).itemsize
