"""SessionOptions and RunOptions: typed, strict, copyable; the same names and defaults as onnxruntime's."""

import copy
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import ort_core as ort
from ort_core import options, settings
from ort_core.environment import default_environment
from ort_core.errors import InvalidArgument, InvalidType, NotImplemented, UnknownOption
from ort_core.options import GraphOptimizationLevel, Option, RunOptions, SessionOptions
from ort_core.session_api.devices import OrtEpDevice, OrtHardwareDevice
from ort_core.settings import KNOWN_PROVIDERS, Scope, all_settings, environment_value, find_setting
from ort_core.stages import PrepareSettings
from ort_core.tensors.memory_facts import OrtHardwareDeviceType
from ort_core.tensors.ort_value import OrtValue

BEYOND = {"sample_inputs", "strict_placement", "max_allocation_bytes", "custom_passes", "time_limit_s"}


@pytest.mark.parametrize("name", ["SessionOptions", "RunOptions"])
def test_attributes_and_defaults_are_those_of_onnxruntime(name):
    ours, theirs = getattr(options, name)(), getattr(onnxruntime, name)()
    attributes = {n for n in dir(type(ours)) if isinstance(getattr(type(ours), n), Option)} - BEYOND
    expected = {n for n in dir(theirs) if n[0] != "_" and not callable(getattr(theirs, n))}
    assert attributes == expected
    for attribute in sorted(attributes):
        value, default = getattr(ours, attribute), getattr(theirs, attribute)
        assert (int(value) if hasattr(default, "value") else value) == getattr(default, "value", default), attribute


@pytest.mark.parametrize("name", ["SessionOptions", "RunOptions"])
def test_methods_are_those_of_onnxruntime(name):
    missing = {n for n in dir(getattr(onnxruntime, name)) if n[0] != "_"} - set(dir(getattr(options, name)))
    assert not missing


@pytest.mark.parametrize("name", ["GraphOptimizationLevel", "ExecutionMode", "ExecutionOrder", "OrtCompileApiFlags"])
def test_enumerations_have_the_members_of_onnxruntime(name):
    theirs = {n: int(m.value) for n, m in getattr(onnxruntime, name).__members__.items()}
    assert {n: int(m) for n, m in getattr(ort, name).__members__.items()} == theirs


def test_an_unknown_attribute_is_refused_with_the_near_name():
    with pytest.raises(UnknownOption, match=r"no attribute 'intra_op_num_thread'.*Did you mean 'intra_op_num_threads'"):
        SessionOptions().intra_op_num_thread = 2
    assert not hasattr(SessionOptions(), "intra_op_num_thread")


@pytest.mark.parametrize(
    ("name", "value"),
    [("intra_op_num_threads", "3"), ("logid", 3), ("enable_profiling", "yes"), ("execution_mode", "parallel")],
)
def test_an_attribute_of_another_type_is_refused(name, value):
    with pytest.raises(InvalidType, match=name):
        setattr(SessionOptions(), name, value)


@pytest.mark.parametrize(("name", "value"), [("max_allocation_bytes", -1), ("log_severity_level", 7)])
def test_a_number_outside_its_range_is_refused(name, value):
    with pytest.raises(InvalidArgument, match=name):
        setattr(SessionOptions(), name, value)


def test_numpy_integers_and_plain_numbers_of_members_are_taken():
    chosen = SessionOptions()
    chosen.intra_op_num_threads = np.int64(3)
    chosen.graph_optimization_level = 1
    assert chosen.intra_op_num_threads == 3
    assert chosen.graph_optimization_level is GraphOptimizationLevel.ORT_ENABLE_BASIC


def test_a_configuration_entry_is_kept_and_typed():
    chosen = SessionOptions()
    assert chosen.setting("session.disable_prepacking") is False
    chosen.add_session_config_entry("session.disable_prepacking", "1")
    assert chosen.get_session_config_entry("session.disable_prepacking") == "1"
    assert chosen.setting("session.disable_prepacking") is True


def test_an_entry_that_was_not_set_is_an_error_as_in_onnxruntime():
    with pytest.raises(RuntimeError, match="SessionOptions does not have configuration with key: nope"):
        SessionOptions().get_session_config_entry("nope")
    with pytest.raises(RuntimeError, match="RunOptions does not have configuration with key: nope"):
        RunOptions().get_run_config_entry("nope")


def test_an_unknown_key_is_refused_with_the_near_name():
    with pytest.raises(UnknownOption, match=r"Did you mean 'session.disable_prepacking'"):
        SessionOptions().add_session_config_entry("session.disable_prepackin", "1")


def test_a_key_without_effect_is_taken_and_the_reason_logged(caplog):
    with caplog.at_level("INFO", "ort_core"):
        SessionOptions().add_session_config_entry("session.inter_op.allow_spinning", "0")
    assert "session.inter_op.allow_spinning has no effect here: operators run one after the other" in caplog.text


@pytest.mark.parametrize(
    ("kind", "name", "value", "why"),
    [
        (
            SessionOptions,
            "inter_op_num_threads",
            4,
            "operators run one after the other",
        ),
        (SessionOptions, "execution_mode", ort.ExecutionMode.ORT_PARALLEL, "operators run one after the other"),
        (SessionOptions, "execution_order", ort.ExecutionOrder.PRIORITY_BASED, "a provider orders its own steps"),
        (SessionOptions, "enable_cpu_mem_arena", False, "one arena is planned"),
        (SessionOptions, "enable_mem_pattern", False, "memory is always planned"),
        (SessionOptions, "enable_mem_reuse", False, "memory is always planned"),
        (SessionOptions, "use_per_session_threads", False, "share threads"),
        (SessionOptions, "use_deterministic_compute", True, "the same bits on every run"),
        (SessionOptions, "log_severity_level", 3, "set_default_logger_severity"),
        (RunOptions, "logid", "mine", "set_default_logger_severity"),
        (RunOptions, "only_execute_path_to_fetches", True, "a run computes all outputs"),
    ],
)
def test_an_attribute_without_effect_says_why_where_it_is_set(kind, name, value, why, caplog):
    chosen = kind()
    with caplog.at_level("INFO", "ort_core"):
        setattr(chosen, name, getattr(chosen, name))
    assert caplog.text == "", "the default asks for nothing"
    with caplog.at_level("INFO", "ort_core"):
        setattr(chosen, name, value)
    [record] = caplog.records
    assert record.getMessage().startswith(f"{kind.__name__} {name} has no effect here: ")
    assert why in record.getMessage()


def test_a_key_that_stands_for_an_attribute_without_effect_says_so_once(caplog):
    with caplog.at_level("INFO", "ort_core"):
        SessionOptions().add_session_config_entry("session.execution_mode", "parallel")
    assert [record.getMessage() for record in caplog.records] == [
        "SessionOptions execution_mode has no effect here: operators run one after the other, "
        "each on up to intra_op_num_threads threads"
    ]


def test_every_attribute_is_read_somewhere_or_says_why_not():
    package = Path(settings.__file__).parent
    sources = [path for path in package.rglob("*.py") if path.parent.name != "options" and path.name != "settings.py"]
    read = "\n".join(path.read_text(encoding="utf-8") for path in [*sources, package / "stages" / "settings.py"])
    silent = [
        name
        for kind in (SessionOptions, RunOptions)
        for name, option in vars(kind).items()
        if isinstance(option, Option) and not option.no_effect and not re.search(rf"\.{name}\b", read)
    ]
    assert silent == [], "these attributes are taken, nothing reads them, and nothing tells the user so"


def test_every_key_is_read_somewhere_or_says_why_not():
    package = Path(settings.__file__).parent
    read = "\n".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py") if path.name != "settings.py")
    read += (package / "stages" / "settings.py").read_text(encoding="utf-8")
    of_the_tests = {"ORT_TEST_DATA"}
    external = "session.optimized_model_external_initializers"
    silent = [
        row.name
        for row in all_settings().values()
        if not (row.no_effect or row.attribute or len(row.choices) == 1 or row.name in of_the_tests)
        and f'"{row.name}"' not in read
        and f'{{_EXTERNAL}}{row.name.removeprefix(external)}"' not in read
    ]
    assert silent == [], "these keys are taken, nothing reads them, and nothing tells the user so"


def test_a_layout_of_caches_that_no_kernel_knows_is_refused():
    with pytest.raises(InvalidArgument, match="expected BNSH"):
        SessionOptions().add_session_config_entry("session.gqa_value_layout", "BNHS")


def test_keys_for_single_passes_switch_them():
    options = SessionOptions()
    options.add_session_config_entry("session.disable_double_qdq_remover", "1")
    options.add_session_config_entry("optimization.enable_cast_chain_elimination", "1")
    found = PrepareSettings.of(options, default_environment())
    assert found.disabled_passes == {"DoubleQDQPairsRemover"}
    assert found.enabled_passes == {"CastChainElimination"}
    assert found.optimization_facts != PrepareSettings.of(SessionOptions(), default_environment()).optimization_facts


def test_a_chain_of_casts_is_dropped_only_where_that_is_asked_for():
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[N] x) => (float[N] y) { h = Cast<to=10>(x) f = Cast<to=1>(h) y = Neg(f) }"""
    model = parser.parse_model(text).SerializeToString()
    asked = SessionOptions()
    asked.add_session_config_entry("optimization.enable_cast_chain_elimination", "1")
    x = np.array([1.0001], np.float32)
    for given, expected in ((SessionOptions(), -x.astype(np.float16).astype(np.float32)), (asked, -x)):
        session = ort.InferenceSession(model, given, providers=["ReferenceExecutionProvider"])  # it rounds each value
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)


def test_a_value_of_another_type_is_refused_with_the_meaning_of_the_key():
    with pytest.raises(InvalidArgument, match=r"'banana', expected an integer .*Threads within an operator"):
        SessionOptions().add_session_config_entry("session.intra_op_num_threads", "banana")


def test_a_key_longer_than_onnxruntime_allows_is_refused():
    with pytest.raises(InvalidArgument, match="longer than maximum length 1024"):
        SessionOptions().add_session_config_entry("k" * 1025, "1")


@pytest.mark.parametrize(
    ("key", "value", "attribute", "expected"),
    [
        ("session.intra_op_num_threads", "5", "intra_op_num_threads", 5),
        ("session.graph_optimization_level", "enable_basic", "graph_optimization_level", 1),
        ("session.execution_mode", "parallel", "execution_mode", 1),
        ("session.log_id", "me", "logid", "me"),
    ],
)
def test_a_key_that_says_the_same_as_an_attribute_sets_it(key, value, attribute, expected):
    chosen = SessionOptions()
    chosen.add_session_config_entry(key, value)
    assert getattr(chosen, attribute) == expected


def test_lenient_options_warn_of_what_strict_ones_refuse():
    class Lenient(SessionOptions):
        unknown_is_error = False

    chosen = Lenient()
    with pytest.warns(UserWarning, match="no configuration key 'session.nope'"):
        chosen.add_session_config_entry("session.nope", "1")
    with pytest.warns(UserWarning, match="expected 0 or 1"):
        chosen.add_session_config_entry("session.disable_prepacking", "banana")
    assert chosen.get_session_config_entry("session.nope") == "1"
    assert chosen.setting("session.disable_prepacking") is False


def filled() -> SessionOptions:
    chosen = SessionOptions()
    chosen.enable_profiling = True
    chosen.add_session_config_entry("session.disable_prepacking", "1")
    chosen.add_free_dimension_override_by_name("N", 3)
    chosen.add_provider("SomeProvider", {"a": 1})
    chosen.add_external_initializers_from_files_in_memory(["w.bin"], [b"12345678"], [4])
    return chosen


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o)), SessionOptions.copy]
)
def test_options_are_equal_after_copying_and_pickling_and_independent_of_the_original(duplicate):
    original = filled()
    if duplicate is copy.deepcopy:
        original._external_files.clear()  # a memoryview is shared, never copied deeply
    found = duplicate(original)
    assert found == original
    found.add_free_dimension_override_by_name("M", 4)
    found.add_session_config_entry("session.disable_prepacking", "0")
    found.custom_passes.append(object())
    assert dict(original.dimensions_by_name) == {"N": 3}
    assert original.setting("session.disable_prepacking") is True
    assert original.custom_passes == []


def test_only_the_stated_length_of_a_file_in_memory_is_used():
    assert bytes(filled().external_files["w.bin"]) == b"1234"


def test_an_initializer_must_be_an_ort_value():
    with pytest.raises(InvalidType, match="expected an OrtValue"):
        SessionOptions().add_initializer("w", np.zeros(2))
    chosen = SessionOptions()
    chosen.add_initializer("w", OrtValue.ortvalue_from_numpy(np.zeros(2, np.float32)))
    assert list(chosen.initializers) == ["w"]


def test_the_devices_of_one_provider_name_it():
    hardware = OrtHardwareDevice(OrtHardwareDeviceType.CPU)
    chosen = SessionOptions()
    assert not chosen.has_providers()
    chosen.add_provider_for_devices([OrtEpDevice("A", "", hardware)], {"x": "1"})
    assert chosen.has_providers()
    assert chosen.providers == [("A", {"x": "1"})]
    with pytest.raises(InvalidArgument, match="same execution provider"):
        chosen.add_provider_for_devices([OrtEpDevice("A", "", hardware), OrtEpDevice("B", "", hardware)], {})


def test_a_library_of_compiled_operators_is_refused_with_the_way_to_go():
    with pytest.raises(NotImplemented, match="ort_custom_ops"):
        SessionOptions().register_custom_ops_library("/nope.so")


def test_every_setting_has_a_meaning_and_a_default_that_parses_as_itself():
    for (scope, name), setting in all_settings().items():
        assert setting.scope is scope
        assert setting.meaning.endswith((".", ";")) or setting.meaning[-1] in "`)", name
        text = str(int(setting.default)) if isinstance(setting.default, bool) else str(setting.default)
        if text:
            assert setting.parse(text) == setting.default, name


def test_every_key_that_names_an_attribute_has_its_default():
    chosen = SessionOptions()
    for setting in all_settings().values():
        if setting.attribute:
            fresh = SessionOptions()
            text = str(int(setting.default)) if isinstance(setting.default, bool) else str(setting.default)
            fresh.add_session_config_entry(setting.name, text)
            assert getattr(fresh, setting.attribute) == getattr(chosen, setting.attribute), setting.name


def test_known_provider_names_are_those_of_onnxruntime():
    assert list(KNOWN_PROVIDERS) == onnxruntime.get_all_providers()


def test_environment_variables_are_typed(monkeypatch):
    monkeypatch.setenv("ORT_INTRA_OP_NUM_THREADS", "3")
    assert environment_value("ORT_INTRA_OP_NUM_THREADS") == 3
    monkeypatch.setenv("ORT_INTRA_OP_NUM_THREADS", "many")
    with pytest.raises(InvalidArgument, match="expected an integer"):
        environment_value("ORT_INTRA_OP_NUM_THREADS")
    monkeypatch.delenv("ORT_INTRA_OP_NUM_THREADS")
    assert environment_value("ORT_INTRA_OP_NUM_THREADS") == 0
    assert find_setting(Scope.ENVIRONMENT, "ORT_NOPE") is None


def test_a_run_option_may_be_infinite_or_absent():
    chosen = RunOptions()
    assert chosen.time_limit_s is None
    chosen.time_limit_s = 2
    chosen.time_limit_s = None
    with pytest.raises(InvalidArgument, match="time_limit_s"):
        chosen.time_limit_s = -1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen.add_run_config_entry("gpu_graph_id", "1")


@pytest.mark.parametrize(
    "key",
    [
        "ep.cpu.qmoe_deferred_scale", "ep.cuda.moe_packed_gpu_experts", "ep.enable_weightless_mode",
        "session.external_data_loader.threads", "session.kernel_dispatch_policy", "session.moe.offload.mode",
        "session.moe.offload.tail_substitution_threshold",
    ],
)  # fmt: skip
def test_keys_of_onnxruntime_1_32_are_known_with_why_they_change_nothing(key):
    setting = find_setting(Scope.SESSION, key)
    assert setting is not None
    assert setting.no_effect
    with pytest.raises(InvalidArgument, match="no configuration key"):
        SessionOptions().add_session_config_entry(f"{key}x", "1")
