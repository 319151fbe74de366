"""set_default_logger_callback(): a function hears what the logger says, as onnxruntime calls it."""

import logging
import sys

import pytest

import ort_core
from ort_core.errors import InvalidType, InvalidValue

log = logging.getLogger("ort_core.session")


@pytest.fixture(autouse=True)
def _restored():
    logger = logging.getLogger("ort_core")
    level = logger.level
    yield
    ort_core.set_default_logger_callback(None)
    logger.setLevel(level)


def test_a_callback_hears_messages_of_its_severity_and_above_until_it_is_taken_away():
    heard = []
    ort_core.set_default_logger_callback(lambda *arguments: heard.append(arguments))
    log.info("not heard")
    log.warning("%d of them", 3)
    log.error("broken")
    assert [(severity, message) for severity, _, _, _, message in heard] == [(2, "3 of them"), (3, "broken")]
    _, category, logid, place, _ = heard[0]
    assert (category, logid) == ("ort_core.session", "")
    assert place.startswith("test_logger_callback.py:")
    ort_core.set_default_logger_callback(None)
    log.error("not heard")
    assert len(heard) == 2


def test_another_callback_replaces_the_first():
    first, second = [], []
    ort_core.set_default_logger_callback(lambda *arguments: first.append(arguments))
    ort_core.set_default_logger_callback(lambda *arguments: second.append(arguments), 0)
    log.debug("details")
    assert (len(first), len(second)) == (0, 1)
    assert second[0][0] == 0


def test_a_callback_that_logs_or_fails_stops_nothing(monkeypatch, capsys):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)

    def callback(*arguments):
        log.warning("from inside")
        raise ZeroDivisionError

    ort_core.set_default_logger_callback(callback)
    log.warning("outside")
    assert [each.exc_type for each in unraisable] == [ZeroDivisionError]
    assert capsys.readouterr().err.splitlines() == ["from inside", "outside"]


@pytest.mark.parametrize(("callback", "severity"), [(3, 2), (print, 5), (None, -1)])
def test_wrong_arguments_raise_a_runtime_error_as_in_onnxruntime(callback, severity):
    with pytest.raises(InvalidValue):
        ort_core.set_default_logger_callback(callback, severity)
    with pytest.raises(InvalidType):
        ort_core.set_default_logger_callback(None, "warning")
