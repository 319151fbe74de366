"""Each setting with values that cannot be meant: a sentence that names the setting, and no server that stops."""

from __future__ import annotations

import time

import pytest

from ort_serve.failures import InvalidRequest
from ort_serve.repository.scan import scan_model
from ort_serve.repository.settings_files import read_model_settings
from ort_serve.repository.triton_config import unread_fields

ODD = (
    "true", "-1", "1.5", "nan", "inf", "-inf", "1e300", "9999999999999999999999999", '"x"', '"2"', '""', "[true]",
    "[-2]", '["a"]', "[1.5]", "{a = 1}", "[{}]", "[[1]]", "1979-05-27",
)  # fmt: skip
# what a setting takes of these values, by its line in the file
TAKES = {
    "file = {}": {'"x"', '"2"'},
    "providers = {}": {'["a"]'},
    "session_options = {}": set(),
    "instances = {}": set(),
    "threads = {}": set(),
    "versions = {}": set(),
    "latest = {}": {"9999999999999999999999999"},
    "pinned = {}": {"true"},
    "batching = {}": set(),
    "queue = {}": set(),
    "warm_up = {}": {"[{}]"},
    "inputs = {}": set(),
    "outputs = {}": set(),
    "batching.max_batch_size = {}": set(),
    "batching.max_delay_ms = {}": {"1.5"},
    "batching.preferred_sizes = {}": set(),
    "queue.limit = {}": {"9999999999999999999999999"},
    "queue.time_limit_s = {}": {"1.5"},
    "queue.priorities = {}": set(),
    "queue.default_priority = {}": set(),
    "warm_up = [{{count = {}}}]": set(),
    "warm_up = [{{inputs = {}}}]": set(),
    "warm_up = [{{inputs = {{x = {{shape = {}}}}}}}]": set(),
    "warm_up = [{{inputs = {{x = {{shape = [1], fill = {}}}}}}}]": set(),
    "inputs = [{{name = {}}}]": {'"x"', '"2"', '""'},
    'inputs = [{{name = "x", datatype = {}}}]': set(),
    'inputs = [{{name = "x", shape = {}}}]': set(),
    'outputs = [{{name = "x", shape = [1], reshape = {}}}]': set(),
}


def told(folder, text: str, file: str = "model.toml") -> str:
    (folder / file).write_text(text, encoding="utf-8")
    try:
        read_model_settings(folder)
    except InvalidRequest as refusal:
        return str(refusal).removeprefix(f"{folder / file}: ")
    return ""


@pytest.mark.parametrize("line", TAKES)
def test_a_value_of_another_kind_is_refused_by_the_setting_s_name(tmp_path, line):
    innermost = line.partition(" = {}")[0].rpartition(" ")[2].rpartition(".")[2].lstrip("{[")
    for value in ODD:
        sentence = told(tmp_path, line.format(value))
        assert bool(sentence) != (value in TAKES[line]), (value, sentence)
        assert not sentence or innermost in sentence, (value, sentence)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("instances = true", "instances must be a whole number; found true"),
        ("instnces = 2", "there is no setting instnces; did you mean instances?"),
        ("is_pinned = true", "there is no setting is_pinned; did you mean pinned?"),
        ("max_batch_size = 3", "there is no setting max_batch_size; max_batch_size belongs to [batching]"),
        ("[batching]\ninstances = 3", "there is no setting batching.instances; instances belongs above all tables"),
        ("[queue]\nlimits = 3", "there is no setting queue.limits; did you mean limit?"),
        ("[queue]\nx = 3", "no setting queue.x; there are limit, time_limit_s, priorities, default_priority"),
        ("inputs = [{shape = [1]}]", "inputs.0.name is missing"),
        ('providers = [["A", {a = 1}]]', "providers.0 must be a provider's name, or [name,"),
        ("versions = 3", 'versions must be "latest", "all" or a list of version numbers; found 3'),
        ('file = ".."', "file must be the name of a file in a version's folder, without a path"),
        ("[[warm_up]]\ninputs = {x = {shape = [99999999999]}}", "shape must have at most 268435456 elements"),
        ('inputs = [{name = "x", datatype = "FP33"}]', "datatype must be one of BOOL, UINT8,"),
        (f"latest = {'1' * 5000}", "cannot be read: Exceeds the limit"),
        (f"x = {'[' * 100_000}", "cannot be read: "),
    ],
)
def test_the_sentence_says_what_may_stand_there(tmp_path, text, expected):
    assert expected in told(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("instance_group { count: -1 }", "instance_group.count must be at least 1; found -1"),
        ("instance_group [ { count: 2 }, { count: -1 } ]", "instance_group.count must be at least 1; found -1"),
        ("max_batch_size: -1", "max_batch_size must be at least 0; found -1"),
        ("max_batch_size: 70000 dynamic_batching { }", "max_batch_size must be at most 65536; found 70000"),
        ("dynamic_batching { preferred_batch_size: [ 0 ] }", "dynamic_batching.preferred_batch_size.0 must be at le"),
        ("version_policy { specific { versions: [ -1 ] } }", "version_policy.specific.versions must be"),
        ('input { name: "x" dims: -2 }', "input.0.shape.0 must be at least -1; found -2"),
        (f"max_batch_size: {'1' * 5000}", "cannot be read"),
        ("a { " * 3000, "cannot be read"),
        *(
            (
                f'parameters {{ key: "intra_op_thread_count" value {{ string_value: "{value}" }} }}',
                "parameters 'intra_op_thread_count' must be",
            )
            for value in ("many", "-3", "1.5", "99999", "1" * 5000, "²")
        ),
    ],
)
def test_the_sentence_has_the_names_of_triton_s_settings(tmp_path, text, expected):
    assert expected in told(tmp_path, text, "config.pbtxt")


def test_a_field_that_is_not_known_is_told_with_the_one_that_may_be_meant(tmp_path):
    (tmp_path / "config.pbtxt").write_text("instance_groups { count: 2 } dynamic_batching { max_delay: 5 }")
    assert unread_fields(tmp_path / "config.pbtxt") == [
        "dynamic_batching.max_delay", "instance_groups (did you mean instance_group?)",
    ]  # fmt: skip


def test_a_long_word_does_not_take_minutes(tmp_path):
    begin = time.process_time()
    assert "cannot be read" in told(tmp_path, "a" * 100_000, "config.pbtxt")
    assert time.process_time() - begin < 30  # it was five billion steps


@pytest.mark.parametrize("text", [f"latest = {'1' * 5000}", f"x = {'[' * 100_000}"])
def test_settings_that_cannot_be_read_are_the_model_s_problem_alone(tmp_path, text):
    (tmp_path / "model.toml").write_text(text)
    assert "cannot be read" in scan_model(tmp_path).problem
