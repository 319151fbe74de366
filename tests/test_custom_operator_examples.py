"""The examples of custom operators and passes: each runs, and does what its first lines say."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest

import ort_core as ort
from ort_core import tolerances
from ort_core.onnx_io.save import model_to_bytes
from ort_core.testing import OpCase, check_custom_op, check_pass
from ort_core.testing.cuda_emulation import find_compiler
from ort_core.testing.models import model_of

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def load_example(path: str) -> ModuleType:
    file = EXAMPLES / path
    spec = importlib.util.spec_from_file_location(f"example_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


def kernels(session: ort.InferenceSession) -> list[str]:
    """Return the names of the native kernels of a session's steps; a name is made of the kernel's code."""
    programs = [p for planned in session._loaded.prepared.plan.steps for p in planned.step.compiled.native_programs]
    return [step.kernel for program in programs for step in program.steps]


def test_the_activation_is_right_and_is_compiled_like_the_built_in_one(capsys) -> None:
    example = load_example("custom_ops/activation.py")
    x = np.linspace(-30, 30, 10_001, dtype=np.float32)
    limits = tolerances.tolerance("approximate", "float32")
    (found,) = example.open_session("com.acme.Mish").run(None, {"x": x})
    wide = x.astype(np.float64)
    np.testing.assert_allclose(found, wide * np.tanh(np.logaddexp(0, wide)), limits.relative, limits.absolute)
    own, built_in = example.open_session("com.acme.OwnGelu"), example.open_session("Gelu")
    assert len(kernels(own)) == len(kernels(built_in)) == 1, "a formula is one compiled step, as a built-in operator is"
    assert set(example.measure(elements=1000, rounds=1)) == {
        "Mish, custom", "Gelu, custom", "Gelu, built in", "Mish, numpy",
    }  # fmt: skip


def test_the_tokenizer_splits_pads_and_masks() -> None:
    example = load_example("custom_ops/tokenizer.py")
    texts = np.array(["The cat sat.", "A dog, the cat!", ""], object)
    ids, known = example.open_session().run(None, {"texts": texts})
    assert ids.tolist() == [[1, 2, 3, 0, 0, 0], [0, 0, 0, 1, 2, 0], [0] * 6]
    assert known.tolist() == [3, 2, 0]
    assert example.open_session().get_outputs()[0].type == "tensor(int64)"
    words = {"vocabulary": ["?", "the"]}
    check_custom_op(example.word_tokenizer, [OpCase([texts], words), OpCase([texts], {**words, "lowercase": False})])


def test_the_stream_is_normalized_by_all_that_was_seen_and_each_session_sees_its_own() -> None:
    example = load_example("custom_ops/running_statistics.py")
    batches = np.random.default_rng(0).normal(7, 3, (6, 50)).astype(np.float32)
    first, second = example.open_session(), example.open_session()
    for number, batch in enumerate(batches, 1):
        (found,) = first.run(None, {"x": batch})
        seen = batches[:number].astype(np.float64)
        np.testing.assert_allclose(found, (batch - seen.mean()) / (seen.std() + 1e-5), rtol=1e-4, atol=1e-5)
    (alone,) = second.run(None, {"x": batches[0]})
    np.testing.assert_allclose(
        alone, (batches[0] - batches[0].mean()) / (batches[0].std() + 1e-5), rtol=1e-4, atol=1e-5
    )


def test_threads_that_share_a_state_lose_no_count() -> None:
    example = load_example("custom_ops/running_statistics.py")
    states = []
    make = example.StatisticsState

    @ort.custom_op(
        "com.acme", "StreamNormalization", state=lambda: states.append(make()) or states[-1], is_reentrant=False
    )
    def counted(x, *, state):
        return example.stream_normalization(x, state=state)

    options = ort.SessionOptions()
    options.register_custom_ops_library(counted)
    model = model_of("g (float[N] x) => (float[N] y) { y = com.acme.StreamNormalization (x) }", opsets='"com.acme" : 1')
    session = ort.InferenceSession(model_to_bytes(model), options)
    start = threading.Barrier(4)

    def work(seed: int) -> None:
        start.wait(timeout=200)
        for _ in range(50):
            session.run(None, {"x": np.full(3, seed, np.float32)})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    (state,) = states
    assert state.count == 4 * 50 * 3
    assert state.mean == pytest.approx(1.5)


@pytest.mark.skipif(find_compiler() is None, reason="CUDA is emulated by a C++ compiler; none is here")
def test_the_cuda_kernel_computes_what_the_numpy_kernel_does() -> None:
    report = load_example("custom_ops/cuda_kernel.py").check()
    assert "CUDA kernel (emulated)" in report.checked
    assert not report.not_checked


PROGRAM = """
import numpy as np, ort_core as ort
from ort_core.onnx_io.save import model_to_bytes
from ort_core.testing.models import model_of
text = "g (string[N] x) => (int64[N] y) { f = org.example.text.CaseFold (x) y = org.example.text.Length (f) }"
model = model_to_bytes(model_of(text, opsets='"org.example.text" : 1'))
print(ort.InferenceSession(model).run(None, {"x": np.array(["Stra\\u00dfe", ""], object)})[0].tolist())
"""


def test_an_installed_package_of_operators_is_found_by_its_entry_point(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling builds the example package; it is not installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    install = [*pip, "--no-deps", "--no-index", "--no-build-isolation", "--target", str(tmp_path)]
    subprocess.run([*install, str(EXAMPLES / "ort-ops-text")], check=True, cwd=tmp_path)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[7, 0]"


def test_the_fusion_fires_on_its_example_and_on_no_near_miss() -> None:
    example = load_example("custom_passes/fuse_silu.py")
    body = "g (float[N] x, float[N] z) => (float[N] y) { s = Sigmoid (x) y = Mul (s, x) }"
    report = check_pass(example.FuseSilu(), model_of(body), libraries=[example.LIBRARY])
    assert report.counts == {"SiluRule": 1}
    assert report.nodes_after == 1
    for near in (
        body.replace("Mul (s, x)", "Mul (s, z)"),
        body.replace("Mul (s, x)", "Add (s, x)"),
        body.replace("y = Mul (s, x)", "t = Mul (s, x) y = Add (t, s)"),
        body.replace("float[", "double["),
    ):
        assert not check_pass(example.FuseSilu(), model_of(near), libraries=[example.LIBRARY]).has_changed


def test_the_fusion_runs_as_the_guide_shows_it_on_a_model_that_it_makes(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parent.parent
    script = root / "examples/custom_passes/fuse_silu.py"
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=True)
    shown = (root / "docs/howto/write_a_pass.md").read_text(encoding="utf-8")
    assert f"$ python fuse_silu.py\n{done.stdout}" in shown
    assert (tmp_path / "silu.onnx").is_file()


@pytest.mark.slow
def test_the_fusion_takes_nodes_out_of_a_shared_model_and_keeps_its_results(
    external_test_data: Path, tmp_path: Path
) -> None:
    example = load_example("custom_passes/fuse_silu.py")
    path = tmp_path / "efficientnet_b0.onnx"
    sys.path.append(str(external_test_data / "models"))
    try:
        import materialize
    except ImportError:
        pytest.skip("the external test data has no models to materialize")
    finally:
        sys.path.pop()
    path = Path(materialize.materialize(external_test_data / "models/efficientnet_b0.onnx", tmp_path))
    pairs = sum(node.op_type == "Sigmoid" for node in onnx.load(path, load_external_data=False).graph.node)
    by_numpy = "ReferenceExecutionProvider"  # compiling the whole model twice takes longer than all other examples
    plain, fused = (example.open_session(path, is_fused=fused, provider=by_numpy) for fused in (False, True))
    assert len(plain.explain().nodes) - len(fused.explain().nodes) > pairs / 2 > 10
    theirs = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    sizes = [size if isinstance(size, int) else 1 for size in theirs.get_inputs()[0].shape]
    x = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
    feeds = {theirs.get_inputs()[0].name: x}
    expected = theirs.run(None, feeds)[0]
    scale = max(1.0, float(np.abs(expected).max()))
    for session in (plain, fused):
        result = tolerances.compare(session.run(None, feeds)[0] / scale, expected / scale, "approximate")
        assert result.passes, str(result)
