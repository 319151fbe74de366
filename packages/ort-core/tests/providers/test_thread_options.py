"""Thread options: affinities as text, one for each worker, and the way from session options to a provider."""

from __future__ import annotations

import pytest

from ort_core.environment import Environment
from ort_core.errors import InvalidArgument
from ort_core.options import SessionOptions
from ort_core.providers.thread_options import ThreadOptions, parse_affinities
from ort_core.stages import PrepareSettings


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", ()), ("1", ((0,),)), ("1,2;3,4", ((0, 1), (2, 3))), ("1-3; 5", ((0, 1, 2), (4,))), ("1024", ((1023,),))],
)
def test_affinities_are_read_as_onnxruntime_writes_them(text, expected):
    assert parse_affinities(text) == expected


@pytest.mark.parametrize("text", ["0", "1;", "a", "3-1", "1-", "1,,2", "1025", "1-99999999999", "-1"])
def test_affinities_that_mean_nothing_are_refused_with_their_text(text):
    with pytest.raises(InvalidArgument, match=r"session.intra_op_thread_affinities is .*Processors count from 1"):
        parse_affinities(text)


def test_there_is_one_affinity_for_each_thread_but_the_callers():
    assert ThreadOptions(3, affinities=((0,), (1,))).affinities == ((0,), (1,))
    with pytest.raises(InvalidArgument, match=r"names 1 groups.*intra_op_num_threads is 3, so 2 are expected"):
        ThreadOptions(3, affinities=((0,),))


def test_session_options_reach_the_provider_as_thread_options():
    options = SessionOptions()
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.intra_op.spin_duration_us", "70")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.add_session_config_entry("session.intra_op_thread_affinities", "2")
    expected = ThreadOptions(2, False, 70, False, ((1,),))
    assert PrepareSettings.of(options, Environment()).threads == expected
