"""Every ``ORT_*`` environment variable and every session and run configuration key: one table, one row each.

A row says the name, the type, the default, what it does, and, where onnxruntime has a key that means nothing here,
why setting it has no effect. Values are strings, as in onnxruntime; a value that does not fit its type is refused.
"""

from __future__ import annotations

import enum
import functools
import os

from ort_core.errors import InvalidArgument, UnknownOption, did_you_mean
from ort_core.frozen import frozen

SettingValue = bool | int | float | str
MAX_KEY_LENGTH, MAX_VALUE_LENGTH = 1024, 8192  # onnxruntime's limits: what fits here fits there


class Scope(enum.Enum):
    """Where a setting is given."""

    SESSION = "SessionOptions"
    RUN = "RunOptions"
    ENVIRONMENT = "environment variable"


@frozen
class Setting:
    """One setting. ``default`` fixes the type; ``choices`` limits a string; ``no_effect`` gives a reason, if any.

    ``attribute`` names the attribute of SessionOptions that says the same.
    """

    scope: Scope
    name: str
    default: SettingValue
    meaning: str
    choices: tuple[str, ...] = ()
    no_effect: str = ""
    attribute: str = ""

    @property
    def type_name(self) -> str:
        """The type in words."""
        if self.choices:
            return " | ".join(self.choices)
        return {bool: "0 or 1", int: "an integer", float: "a number", str: "text"}[type(self.default)]

    def parse(self, text: str) -> SettingValue:
        """Return the typed value of ``text``.

        Raises:
            InvalidArgument: the text does not fit the type.
        """
        value = self._parsed(text.strip())
        if value is None:
            raise InvalidArgument(
                f"{self.scope.value} {self.name!r} is {text!r}, expected {self.type_name} (default {self.default!r}). "
                f"{self.meaning}"
            )
        return value

    def _parsed(self, text: str) -> SettingValue | None:
        if self.choices:
            return next((choice for choice in self.choices if choice.lower() == text.lower()), None)
        if isinstance(self.default, bool):
            return {"1": True, "true": True, "0": False, "false": False}.get(text.lower())
        if isinstance(self.default, str):
            return text
        try:
            return type(self.default)(text)
        except ValueError:
            return None


IN_TURN = "operators run one after the other, each on up to intra_op_num_threads threads"
"""Why numbers of operators at the same time change nothing."""
ONE_ARENA = "one arena is planned for each device and run; there is no second allocator to choose"
"""Why choices of allocators change nothing."""

_PREPACK = "kernels here keep no second, packed copy of a weight that this could switch off"
_INTER_SPIN = "operators run one after the other; no threads wait between them"
_BACKOFF = "waiting threads look again after one pause instruction"
_ORT_FORMAT = "files in the .ort format are read whole, as models, and written by session.save_model_format alone"
_OTHER_EP = "it concerns a provider of onnxruntime; set the option on the plugin provider itself"
_BY_SHAPES = "the shapes of a run choose captured graphs and engines; options of the providers switch capturing off"
_MLAS = "it switches between onnxruntime's own CPU kernels"
_FASTMATH = "here it is an option of the CPU provider: precision=bfloat16"
_SHARED_CONTEXT = "each compiled partition is complete in itself"
_WEIGHTLESS = "each provider decides whether its bytes hold weights; a compiled model keeps the weights of the others"
_MOE = "experts are not counted here"
_MAPPED = "weights in files are mapped, and read where a kernel touches them"
_OFFLOAD = "experts lie where their provider keeps its weights"
_OFFLOADS = (
    "allow_file_backing", "async_max_tokens", "budget_group", "cpu_execution", "cpu_threads", "derived_cache_dir",
    "device_expert_bytes", "device_working_bytes", "gpu_budget_bytes", "gpu_device_mem_limit", "host_expert_bytes",
    "host_working_bytes", "min_expert_weight", "mode", "node_overrides", "pinned_bytes", "placement",
    "popularity_file", "prefill_wave_experts", "reserve_device_bytes", "skip_tail_cold_only",
    "skip_zero_cold_doorbell", "source_root", "tail_substitution_min_rank", "tail_substitution_threshold",
)  # fmt: skip
_TRAINING = "it belongs to onnxruntime's training builds"
_NBITS = "DequantizeLinear in front of a product is compiled as it stands"
_FIRST_TAKES = "a node goes to the first provider asked for that takes it; session.placement_policy can measure instead"
_INLINED = "functions are inlined; name InlineFunctions in optimization.disable_specified_optimizers to keep them"
_LEVELS = ("disable_all", "enable_basic", "enable_extended", "enable_layout", "enable_all")


def _session(
    name: str, default: SettingValue, meaning: str, no_effect: str = "", choices: tuple[str, ...] = ()
) -> Setting:
    return Setting(Scope.SESSION, name, default, meaning, choices, no_effect)


def _run(name: str, default: SettingValue, meaning: str, no_effect: str = "") -> Setting:
    return Setting(Scope.RUN, name, default, meaning, no_effect=no_effect)


def _variable(
    name: str, default: SettingValue, meaning: str, no_effect: str = "", choices: tuple[str, ...] = ()
) -> Setting:
    return Setting(Scope.ENVIRONMENT, name, default, meaning, choices, no_effect)


def _attribute(
    name: str, default: SettingValue, meaning: str, attribute: str = "", choices: tuple[str, ...] = ()
) -> Setting:
    key = f"session.{name}"
    return Setting(Scope.SESSION, key, default, meaning, choices, attribute=attribute or name)


def _attributes() -> tuple[Setting, ...]:
    """Keys that are the text form of an attribute of SessionOptions."""
    modes = ("sequential", "parallel")
    return (
        _attribute("intra_op_num_threads", 0, "Threads within an operator; 0 chooses."),
        _attribute("inter_op_num_threads", 0, "Operators run at the same time; 0 chooses."),
        _attribute("enable_cpu_mem_arena", True, "Keep buffers between runs."),
        _attribute("enable_mem_pattern", True, "Plan all offsets before a run."),
        _attribute("log_id", "", "Name of the session in log lines.", "logid"),
        _attribute("log_severity_level", -1, "0 verbose to 4 fatal; -1: the process's level."),
        _attribute("log_verbosity_level", 0, "Detail of verbose lines."),
        _attribute("enable_profiling", False, "Write a Chrome trace."),
        _attribute("execution_mode", "sequential", "One operator after the other, or in parallel.", choices=modes),
        _attribute("use_per_session_threads", True, "Own threads for this session."),
        _attribute("use_deterministic_compute", False, "Same bits on every run; always so on the CPU."),
        _attribute("graph_optimization_level", "enable_all", "How far the graph is optimized.", choices=_LEVELS),
        _attribute("optimized_model_filepath", "", "Save the optimized model there."),
    )


def _optimizer() -> tuple[Setting, ...]:
    return (
        _session("optimization.disable_specified_optimizers", "", "Names of passes not to run, with commas."),
        _session("optimization.enable_gelu_approximation", False, "Replace Gelu by FastGelu (changes results).",
                 "a session computes Gelu exactly; `ort optimize --enable GeluApproximation` changes the model"),
        _session("optimization.enable_cast_chain_elimination", False, "Drop Casts inside a chain (changes results)."),
        _session(
            "optimization.constant_folding_max_output_size_in_bytes", 1 << 30,
            "A node whose folded result would be larger stays; 0: no limit.",
            "the limit of folding is fixed",
        ),
        _session("session.optimized_model_cache", True, "Keep optimized models and sessions in the artefact cache."),
        _session("session.recalls_bytes", False, "Keep sessions of models given as bytes there, too, by their digest."),
        _session("session.short_cuts", True,
                 "As ORT_SHORT_CUTS, for one session. Code that the process has linked already stays."),
        _session("optimization.minimal_build_optimizations", "", "Record passes for minimal builds.", _ORT_FORMAT),
        _session("optimization.memory_optimizer_config", "", "Recompute activations.", _TRAINING),
        _session("optimization.enable_memory_probe_recompute_config", "", "Probe for recomputation.", _TRAINING),
        _session("session.graph_optimizations_loop_level", 1, "Repeat later levels until nothing changes: 0, 1 or 2.",
                 "passes are repeated until a whole round changes nothing"),
        _session("session.disable_quant_qdq", False, "Leave QuantizeLinear/DequantizeLinear groups as they are.",
                 "whether a group becomes one operator of integers is decided by the provider that runs it"),
        _session("session.disable_qdq_constant_folding", False, "Never fold DequantizeLinear.",
                 "name ConstantFolding in optimization.disable_specified_optimizers to fold nothing"),
        _session("session.disable_double_qdq_remover", False, "Keep repeated quantize/dequantize pairs."),
        _session("session.enable_quant_qdq_cleanup", False, "Remove quantize/dequantize pairs that are left over.",
                 "a session leaves them; `ort optimize` removes them"),
        _session("session.enable_dq_matmulnbits_fusion", False, "Fuse DequantizeLinear and MatMul.", _NBITS),
        _session("session.qdq_matmulnbits_accuracy_level", 4, "Accuracy level of that fusion.", _NBITS),
        _session("session.qdq_matmulnbits_block_size", 0, "Block size of that fusion; 0: 32, -1: chosen.", _NBITS),
        _session("session.qdqisint8allowed", False, "Allow int8 in quantized groups.", "int8 is always allowed here"),
        _session("session.x64quantprecision", False, "No U8S8 saturation.", "products never saturate here"),
        _session("session.disable_aot_function_inlining", False, "Keep calls of functions.", _INLINED),
        _session("session.function_expansion_node_limit", 0, "Most nodes that inlining may add.", _INLINED),
        _session("session.function_expansion_byte_limit", 0, "Most bytes that inlining may add.", _INLINED),
        _session("session.strict_shape_type_inference", False, "A failed shape inference is an error.",
                 "contradicting types are always an error; of contradicting shapes the inferred one counts"),
        _session("session.allow_released_opsets_only", True, "Refuse opsets newer than the known ones."),
        _session("session.debug_layout_transformation", False, "Dump each layout step.", "use `ort optimize` instead"),
        _session("session.gqa_value_layout", "BNSH", "Layout of value caches: only this one.", choices=("BNSH",)),
        _session("session.enable_saved_runtime_optimizations", False, "Replay passes from an .ort file.", _ORT_FORMAT),
    )  # fmt: skip


def _files() -> tuple[Setting, ...]:
    external = "session.optimized_model_external_initializers"
    return (
        _session(
            "session.load_model_format", "ONNX", "Format of the file.", "a file's own bytes tell its format",
            ("ONNX", "ORT"),
        ),
        _session(
            "session.save_model_format", "ONNX", "Format of the saved model; by default that of its name.",
            choices=("ONNX", "ORT"),
        ),
        _session(f"{external}_file_name", "", "File beside the saved model that takes its weights."),
        _session(f"{external}_min_size_in_bytes", 0, "Smallest weight that goes to that file."),
        _session("session.model_external_initializers_file_folder_path", "", "Folder of external data."),
        _session("session.model_external_initializers_linked_folder_path", "",
                 "With that folder: where the file lies that a link there leads to; its data may lie beside it."),
        _session(
            "session.use_external_initializer_file_buffers_directly", False, "Do not copy buffers given by name.",
            "given buffers are never copied",
        ),
        _session("session.save_external_prepacked_constant_initializers", False, "Save packed weights.", _PREPACK),
        _session("session.use_ort_model_bytes_directly", False, "Do not copy the bytes.", _ORT_FORMAT),
        _session("session.use_ort_model_bytes_for_initializers", False, "Weights point into the bytes.", _ORT_FORMAT),
        _session("session.use_memory_mapped_ort_model", False, "Map the file.", _ORT_FORMAT),
        _session("session.collect_node_memory_stats_to_file", "", "CSV with node memory.", "use `ort profile`"),
    )  # fmt: skip


def _threads_and_memory() -> tuple[Setting, ...]:
    spinning = tuple(
        row
        for kind, why in (("intra", ""), ("inter", _INTER_SPIN))
        for row in (
            _session(f"session.{kind}_op.allow_spinning", True, "Threads wait by spinning.", why),
            _session(f"session.{kind}_op.spin_duration_us", 0, "How long they spin; 0 chooses.", why),
            _session(f"session.{kind}_op.spin_backoff_max", 1, "Longest pause between looks.", why or _BACKOFF),
        )
    )
    return (
        *spinning,
        _session("session.force_spinning_stop", False, "Stop spinning after a run."),
        _session("session.dynamic_block_base", 0, "Blocks that a thread takes at a time.", "block sizes are planned"),
        _session("session.intra_op_thread_affinities", "", "Processors of each thread, as `1,2;3,4` or `1-8;9-16`."),
        _session("session.set_denormal_as_zero", False, "Treat denormal numbers as zero.", "results follow IEEE 754"),
        _session("session.disable_prepacking", False, "Do not pack weights.", _PREPACK),
        _session("session.prepack.enable_parallel", False, "Pack weights by many threads.", _PREPACK),
        _session("session.use_env_allocators", False, "Use allocators of the environment.", ONE_ARENA),
        _session("session.use_device_allocator_for_initializers", False, "Weights outside the arena.", ONE_ARENA),
    )  # fmt: skip


def _placement() -> tuple[Setting, ...]:
    return (
        _session(
            "session.placement_policy",
            "priority",
            "Which provider runs a node that several claim: the first asked for, or the cheapest by measuring.",
            choices=("priority", "measured"),
        ),
        _session("session.disable_cpu_ep_fallback", False, "A node that only the last resort would run is an error."),
        _session("session.record_ep_graph_assignment_info", False, "Enable get_provider_graph_assignment_info()."),
        _session("session.node_partition_config_file", "", "Streams of nodes as JSON.", "streams follow partitions"),
        _session("session.resource_cuda_partitioning_settings", "", "Memory that may be filled.", _OTHER_EP),
        _session("session.layer_assignment_settings", "", "Pin layers by annotation: `device(a, =b)`.", _FIRST_TAKES),
        _session("session.name_based_layer_assignment", "", "Pin layers to devices by node name.", _FIRST_TAKES),
        _session("session.max_shape_override", "", "Largest shapes, for estimates.", "sizes are planned symbolically"),
        _session("session.strict_workspace_verification", False, "Check declared workspaces.", "always checked"),
        _session("session.enable_moe_expert_counting", False, "Count experts.", _MOE),
        _session("session.enable_moe_expert_statistics", False, "Write expert statistics.", _MOE),
        _session("session.moe_expert_counter_alpha", 0.0, "Smoothing of counts.", _MOE),
        _session("session.moe_expert_counter_beta", 0.0, "Smoothing of counts.", _MOE),
        _session("session.moe_expert_counter_state_file", "", "Where counts are kept.", _MOE),
        _session("session.compile_only", False, "Internal to onnxruntime.", "ModelCompiler needs no flag"),
        _session("session.disable_model_compile", False, "A compiled partition that does not fit here is an error."),
        _session("session.fail_on_suboptimal_compiled_model", False, "Refuse other versions.",
                 "what does not fit exactly is never used; session.disable_model_compile makes it an error"),
        _session("session.trust_compiled_code", False, "Use the machine code that a compiled model carries."),
    )  # fmt: skip


def _provider_keys() -> tuple[Setting, ...]:
    return (
        _session("ep.context_enable", False, "Write the compiled model when a session is made."),
        _session("ep.context_file_path", "", "Where; empty: `<model>_ctx.onnx` beside the model."),
        _session("ep.context_embed_mode", False, "Compiled partitions inside the file, not beside it."),
        _session("ep.context_node_name_prefix", "", "What the names of EPContext nodes begin with."),
        _session("ep.context_model_external_initializers_file_name", "", "File for the compiled model's weights."),
        _session("ep.context_source_model_path", "", "The original model.", _WEIGHTLESS),
        _session("ep.share_ep_contexts", False, "Sessions share contexts.", _SHARED_CONTEXT),
        _session("ep.stop_share_ep_contexts", False, "End sharing contexts.", _SHARED_CONTEXT),
        _session("ep.enable_weightless", False, "Contexts without weights.", _WEIGHTLESS),
        _session("ep.enable_weightless_mode", "", "Contexts without weights.", _WEIGHTLESS),
        _session("ep.enable_weightless_ep_context_nodes", False, "Contexts without weights.", _WEIGHTLESS),
        _session("ep.dynamic.workload_type", "Default", "Load.", _OTHER_EP, choices=("Default", "Efficient")),
        _session("ep.dynamic.qnn_htp_performance_mode", "", "Power mode.", _OTHER_EP),
        _session("ep.nnapi.partitioning_stop_ops", "", "Operators that end a partition.", _OTHER_EP),
        *(
            _session(f"ep.dml.{name}", False, "DirectML.", _OTHER_EP)
            for name in (
                "disable_graph_fusion", "enable_graph_serialization", "enable_graph_capture",
                "enable_cpu_sync_spinning", "disable_memory_arena",
            )
        ),
        _session("ep.cuda.fpa_intb_gemm", "", "Mixed products.", _OTHER_EP),
        _session("ep.cuda.fpa_intb_profile_m", "", "Sizes to measure.", _OTHER_EP),
        *(
            _session(f"ep.cuda.{name}", "", "CUDA.", _OTHER_EP)
            for name in (
                "fpa_intb_dequant_gemm_min_m", "matmul_nbits_m_chunk_size", "matmul_packed_allow_unrounded_gemv",
                "moe_packed_gpu_experts", "runtime_fusion.causal_conv_with_state", "runtime_fusion.unit_swish",
            )
        ),
        _session("ep.cpu.qmoe_deferred_scale", "", "Scale sums of experts, not products.", _MLAS),
        _session("session.kernel_dispatch_policy", "", "Which kernels are taken.", _MLAS),
        *(
            _session(f"session.external_data_loader.{name}", 0, "Read weights in parts.", _MAPPED)
            for name in ("chunk_bytes", "min_size_bytes", "pinned_memory_bytes", "threads")
        ),
        *(_session(f"session.moe.offload.{name}", "", "Experts outside the device.", _OFFLOAD) for name in _OFFLOADS),
        _session("ep.cuda.gqa_workspace_max_total_sequence_length", 0, "Workspace of attention.", _OTHER_EP),
        _session("mlas.enable_gemm_fastmath_arm64_bfloat16", False, "Products in bfloat16.", _FASTMATH),
        _session("mlas.use_lut_gemm", False, "Products by tables.", _MLAS),
        _session("mlas.disable_kleidiai", False, "No KleidiAI.", _MLAS),
        _session("mlas.kleidiai.conv_igemm_max_work", 0, "Limit of one algorithm.", _MLAS),
        _session("mlas.nchwc_pointwise_conv_max_input_channel_batch", 0, "Channels taken together.", _MLAS),
        _session("mlas.nchwc_depthwise_sliding", False, "Sliding windows.", _MLAS),
        _session("mlas.qnbit.force_fp32", False, "Compute in float.", _MLAS),
    )  # fmt: skip


def _run_keys() -> tuple[Setting, ...]:
    qnn = ("htp_perf_mode", "htp_perf_mode_post_run", "rpc_control_latency", "lora_config")
    return (
        _run(
            "memory.enable_memory_arena_shrinkage",
            "",
            "Give unused memory back after the run, as `cpu:0;gpu:0`.",
            ONE_ARENA,
        ),
        _run(
            "disable_synchronize_execution_providers",
            False,
            "Do not wait for devices at the end of the run.",
            "a run waits for outputs on the host, and for nothing else",
        ),
        _run("gpu_graph_id", 0, "Which captured graph to replay; -1: none.", _BY_SHAPES),
        *(_run(f"qnn.{name}", "", "Qualcomm devices.", _OTHER_EP) for name in qnn),
        _run("nv_profile_index", "", "Which optimization profile.", _BY_SHAPES),
    )


def _variables() -> tuple[Setting, ...]:
    attention = "attention has one implementation for each provider"
    return (
        _variable("ORT_CACHE_DIR", "", "Folder of compiled artefacts; empty: the platform's cache folder."),
        _variable("ORT_CACHE_MAX_NBYTES", 4 << 30, "How large it grows; the least recently used goes. 0: keeps none."),
        _variable("ORT_OPTIMIZED_MODEL_CACHE", True, "Optimized models and sessions are kept in the artefact cache."),
        _variable(
            "ORT_STRICT_COMPILATION", False, "A fault of a provider raises; else others run its nodes."
        ),
        _variable("ORT_PROVIDER_CHECK_TIMEOUT_S", 30.0, "How long a provider's check may take."),
        _variable("ORT_TEST_DATA", "", "Folder of test data outside the repository."),
        _variable("ORT_LOAD_CONFIG_FROM_MODEL", False, "Read session options from the model's metadata `ort_config`."),
        _variable("ORT_INTRA_OP_NUM_THREADS", 0, "Threads within an operator where the options leave it at 0."),
        _variable("ORT_INTER_OP_NUM_THREADS", 0, "Operators at the same time where the options say 0.", IN_TURN),
        _variable("ORT_DISABLE_TELEMETRY", False, "No telemetry.", "there is none"),
        _variable("ORT_DISABLE_FLASH_ATTENTION", False, "Plain attention.", attention),
        _variable("ORT_GQA_DISABLE_FLASH_ATTENTION", False, "Plain attention.", attention),
        _variable("ORT_DISABLE_DECODER_ATTENTION", False, "Plain attention.", attention),
        _variable("ORT_BEAM_SEARCH_USE_FAST_TOPK", True, "Fast selection.", "it concerns onnxruntime's CUDA kernels"),
        _variable("ORT_QMOE_CPU_QNBIT_GEMM", False, "Kernel choice.", _MLAS),
        _variable("ORT_SHORT_CUTS", True,
                  "Take short cuts: known signatures run by one native call, objects are linked without LLVM, sessions "
                  "are recalled from the cache; 0: none of them, to debug what they hide."),
        _variable("ORT_COMPILER_PROCESS", True,
                  "Linux on x86-64: compile in a process of its own, which takes LLVM's memory with it when it ends."),
        _variable("ORT_GUARDED_MEMORY", "off",
                  "For tests: compiled code runs on memory whose end, or beginning, lies against pages that nobody may "
                  "touch.", choices=("off", "end", "begin")),
        _variable("ORT_VERIFY_PASSES", False,
                  "For tests: the graph's invariants, and what each pass says that it did, are checked behind each "
                  "pass; takes longer than the passes."),
        _variable("ORT_CPU_TARGET", "",
                  "For tests: what code is compiled for, as `x86-64-v3` or `x86-64-v4,+avx512vnni`; empty: this "
                  "machine."),
        _variable("ORT_STEP_PIECES", 0,
                  "For tests: pieces for each thread that compiled steps are cut into; 0: chosen by their work."),
        _variable("ALLOW_RELEASED_ONNX_OPSET_ONLY", True, "Refuse opsets newer than the known ones."),
    )  # fmt: skip


# The names that onnxruntime 1.32 knows, in its default order of preference; nothing else depends on them.
KNOWN_PROVIDERS = tuple(
    f"{name}ExecutionProvider"
    for name in (
        "Tensorrt", "CUDA", "MIGraphX", "OpenVINO", "Dnnl", "VitisAI", "QNN", "Nnapi", "VSINPU", "Js", "CoreML", "Dml",
        "Rknpu", "WebNN", "WebGpu", "Xnnpack", "CANN", "Azure", "CPU",
    )
)  # fmt: skip


@functools.cache
def all_settings() -> dict[tuple[Scope, str], Setting]:
    """Return the whole table by scope and name."""
    rows = (
        *_attributes(), *_optimizer(), *_files(), *_threads_and_memory(), *_placement(), *_provider_keys(),
        *_run_keys(), *_variables(),
    )  # fmt: skip
    return {(row.scope, row.name): row for row in rows}


def find_setting(scope: Scope, name: str) -> Setting | None:
    """Return a setting, or ``None`` when the name is not known in that scope."""
    return all_settings().get((scope, name))


def get_setting(scope: Scope, name: str) -> Setting:
    """Return a setting.

    Raises:
        UnknownOption: the name is not known; the message lists near ones.
    """
    found = find_setting(scope, name)
    if found is None:
        known = [known_name for known_scope, known_name in all_settings() if known_scope is scope]
        raise UnknownOption(
            f"{scope.value} has no configuration key {name!r}.{did_you_mean(name, suggested_names(scope))} "
            f"ort_core.settings lists all {len(known)} keys."
        )
    return found


def suggested_names(scope: Scope) -> list[str]:
    """Return the names of a scope to suggest: not those of providers that nobody ships here."""
    return [name for (known, name), each in all_settings().items() if known is scope and each.no_effect != _OTHER_EP]


def environment_value(name: str) -> SettingValue:
    """Return the typed value of an environment variable, its default when it is not set."""
    setting = get_setting(Scope.ENVIRONMENT, name)
    text = os.environ.get(name, "")
    return setting.parse(text) if text else setting.default
