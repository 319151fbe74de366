"""Sessions of a model: from a path or bytes, with options of every kind, and what they say of themselves."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime as ort

if TYPE_CHECKING:
    from models import Sample
    from programs import Steps

CPU = ["CPUExecutionProvider"]
FOLDER = tempfile.mkdtemp(prefix="api-programs-")
ATTRIBUTES: dict[str, list[object]] = {
    "enable_cpu_mem_arena": [True, False, 1, 0, None, "yes"],
    "enable_mem_pattern": [True, False, np.bool_(True)],
    "enable_mem_reuse": [True, False],
    "enable_profiling": [False, True, True],
    "execution_mode": [ort.ExecutionMode.ORT_SEQUENTIAL, ort.ExecutionMode.ORT_PARALLEL, "x"],
    "execution_order": [ort.ExecutionOrder.DEFAULT, ort.ExecutionOrder.PRIORITY_BASED],
    "graph_optimization_level": [*ort.GraphOptimizationLevel.__members__.values(), None, "ORT_ENABLE_ALL"],
    "inter_op_num_threads": [0, 1, 2, np.int64(2), "1"],
    "intra_op_num_threads": [2, 2, 3, np.int32(2), 2.0, None],
    "log_severity_level": [4, 4, 4, 3, -1, "3"],
    "log_verbosity_level": [0, 1, -1],
    "logid": ["", "mine", "ä", b"bytes", None, 3],
    "optimized_model_filepath": ["OPTIMIZED", "OPTIMIZED", "", "/nowhere/at/all.onnx", None, 3],
    "profile_file_prefix": ["PREFIX", "PREFIX", "", None],
    "use_deterministic_compute": [True, False],
    "use_per_session_threads": [True],
}
ENTRIES = [
    ("session.disable_prepacking", "1"),
    ("session.set_denormal_as_zero", "1"),
    ("session.use_env_allocators", "0"),
    ("session.intra_op.allow_spinning", "0"),
    ("session.inter_op.allow_spinning", "1"),
    ("session.dynamic_block_base", "4"),
    ("session.use_ort_model_bytes_directly", "1"),
    ("session.load_model_format", "ONNX"),
    ("session.save_model_format", "ONNX"),
    ("session.disable_quant_qdq", "1"),
    ("session.enable_gelu_approximation", "1"),
    ("session.disable_aot_function_inlining", "1"),
    ("optimization.minimal_build_optimizations", ""),
    ("ep.context_enable", "0"),
    ("session.strict_shape_type_inference", "1"),
    ("session.strict_shape_type_inference", "0"),
    ("session.load_model_format", "nonsense"),
    ("session.unheard_of", "1"),
    ("session.qdqisint8allowed", "1"),
    ("session.disable_prepacking", "nonsense"),
    ("session.force_spinning_stop", "1"),
    ("session.debug_layout_transformation", "0"),
    ("session.model_external_initializers_file_folder_path", "/tmp"),
    ("session.record_ep_graph_assignment_info", "1"),
    ("session.disable_double_qdq_remover", "1"),
    ("mlas.enable_gemm_fastmath_arm64_bfloat16", "1"),
    ("session.max_memory_log", "x"),
    ("session.debug_memory", ""),
]


def _options(draw: Random, sample: Sample, steps: Steps) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    for name in draw.sample(list(ATTRIBUTES), draw.choice([0, 1, 2, 4])):
        given = draw.choice(ATTRIBUTES[name])
        given = f"{FOLDER}/{os.getpid()}-{draw.random()}.onnx" if given == "OPTIMIZED" else given
        given = f"{FOLDER}/profile-{draw.random()}" if given == "PREFIX" else given
        shown = "PATH" if isinstance(given, str) and given.startswith(FOLDER) else given
        steps.take(f"options.{name} = {shown!a}", lambda name=name, given=given: setattr(options, name, given))
        steps.take(f"read options.{name}", lambda name=name: _hidden(getattr(options, name)))
    for key, text in draw.sample(ENTRIES, draw.choice([0, 0, 1, 2])):
        steps.take(f"entry {key}={text}", lambda key=key, text=text: options.add_session_config_entry(key, text))
        steps.take(f"read entry {key}", lambda key=key: _hidden(options.get_session_config_entry(key)))
    if sample.files:
        _give_files(draw, sample, options, steps)
    if draw.random() < (0.6 if sample.name.startswith("denoted") else 0.2):
        name, size = draw.choice(["N", "M", "zz"]), draw.choice([0, 1, 2, 3])
        steps.take(f"override {name} {size}", lambda: options.add_free_dimension_override_by_name(name, size))
    if draw.random() < (0.6 if sample.name.startswith("denoted") else 0.1):
        name, size = draw.choice(["DATA_BATCH", "DATA_BATCH", "zz"]), draw.choice([1, 2])
        steps.take(f"denotation {name} {size}", lambda: options.add_free_dimension_override_by_denotation(name, size))
    if draw.random() < 0.1 or (sample.name.startswith("default") and draw.random() < 0.7):
        name, array = (
            draw.choice(["w", "v", "nobody"]),
            np.full(draw.choice([2, 2, 3]), 5, draw.choice(["f", "f", "d"])),
        )
        given = draw.choice([ort.OrtValue.ortvalue_from_numpy(array), array, None])
        steps.take(
            f"initializer {name} {array.dtype} {type(given).__name__}", lambda: options.add_initializer(name, given)
        )
    return options


def _give_files(draw: Random, sample: Sample, options: ort.SessionOptions, steps: Steps) -> None:
    """Give what files hold in memory: tensor by tensor, or as the files are; what fits, and what does not."""
    kind = draw.choice(["nothing", "tensors", "tensors", "a file", "a file", "numpy"])
    if kind in ("tensors", "numpy"):
        arrays = {"w": np.full((3, draw.choice([2, 2, 2, 3])), 2, draw.choice(["f", "f", "f", "d"]))}
        arrays["b"] = np.arange(2, dtype=np.float32)
        named = draw.choice([["w", "b"], ["w", "b"], ["w"], ["w", "b", "nobody"]])
        given = [arrays.get(name, arrays["b"]) for name in named]
        made = given if kind == "numpy" else [ort.OrtValue.ortvalue_from_numpy(each) for each in given]
        sample.kept.append(given)  # onnxruntime's session reads this memory
        steps.take(
            f"external {kind} {named} {arrays['w'].shape} {arrays['w'].dtype}",
            lambda: options.add_external_initializers(named, made),
        )
    elif kind == "a file":
        (name, content), cut = next(iter(sample.files.items())), draw.choice([0, 0, 0, 1, 70])
        given = draw.choice([bytes, bytearray, memoryview, lambda part: np.frombuffer(part, np.uint8)])
        kept = content[: len(content) - cut]
        length = draw.choice([len(kept), len(kept), len(kept), 3])
        named = draw.choice([name, name, "other.bin"])
        memory = given(kept)
        sample.kept.append(memory)
        steps.take(
            f"external file {named} less {cut} of {length}",
            lambda: options.add_external_initializers_from_files_in_memory([named], [memory], [length]),
        )


def _hidden(found: object) -> object:
    """Return what a property gives; files have other names in each run, enumerations other classes."""
    if isinstance(found, str) and found.startswith(FOLDER):
        return "PATH"
    return getattr(found, "name", found)


def opened(draw: Random, sample: Sample, steps: Steps) -> ort.InferenceSession | None:
    """Return a session, or nothing where that is refused."""
    options = _options(draw, sample, steps)
    source: object = sample.content
    kind = draw.choice(["bytes", "bytes", "text path", "path"])
    if kind != "bytes":
        path = Path(FOLDER, f"model ä {draw.random()}.onnx")
        path.write_bytes(sample.content)
        for name, content in sample.files.items():
            Path(FOLDER, name).write_bytes(content)
        source = str(path) if kind == "text path" else path
    providers = draw.choice(
        [
            CPU,
            CPU,
            tuple(CPU),
            None,
            [],
            [("CPUExecutionProvider", {"use_arena": "0"})],
            [*CPU, *CPU],
            ["AzureExecutionProvider", *CPU],
            [("CPUExecutionProvider", {"a": 1})],
        ]
    )
    made = []
    steps.take(
        f"session of {kind} {providers!a}",
        lambda: made.append(ort.InferenceSession(source, options, providers=providers)),
    )
    return made[0] if made else None


def _argument(each: ort.NodeArg) -> list[object]:
    return [each.name, each.type, each.shape]


def facts(session: ort.InferenceSession) -> object:
    """Return all that a session says of itself."""
    meta = session.get_modelmeta()
    words = (
        "producer_name",
        "graph_name",
        "domain",
        "description",
        "graph_description",
        "version",
    )
    options = session.get_session_options()
    return [
        [_argument(each) for each in session.get_inputs()],
        [_argument(each) for each in session.get_outputs()],
        [_argument(each) for each in session.get_overridable_initializers()],
        [getattr(meta, word) for word in words],
        sorted(meta.custom_metadata_map.items()),
        session.get_providers(),
        session.get_provider_options(),
        [_hidden(getattr(options, name)) for name in ATTRIBUTES],
        [(each.name, each.device_id) for each in session.get_input_memory_infos()],
        [str(each) for each in session.get_inputs()],
        len(session.get_output_memory_infos()),
    ]


def closed(session: ort.InferenceSession | None, steps: Steps) -> None:
    """Read the files that a session was to write."""
    if session is None:
        return
    options = session.get_session_options()
    if options.enable_profiling:
        steps.take("profile", lambda: _profile(session))
    path = options.optimized_model_filepath
    if path.startswith(FOLDER):
        steps.take(
            "optimized", lambda: [_argument(each) for each in ort.InferenceSession(path, providers=CPU).get_outputs()]
        )


def _profile(session: ort.InferenceSession) -> object:
    name = session.end_profiling()
    with open(name, encoding="utf-8") as file:
        events = json.load(file)
    os.unlink(name)
    return [
        type(events).__name__,
        sorted({each["cat"] for each in events}),
        "model_run" in {each["name"] for each in events},
    ]
