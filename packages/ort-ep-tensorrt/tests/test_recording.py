"""Recording: an empty answer becomes an error with the words that came before it."""

import threading
import warnings

import pytest

from ort_ep_tensorrt.network import parse
from ort_ep_tensorrt.program import Program
from ort_ep_tensorrt.recording import MAX_MESSAGE, MAX_MESSAGES, ListenersState, RecordState, SdkError, stripped


def test_an_answer_is_handed_on():
    assert RecordState().expect(0, "count") == 0


@pytest.mark.parametrize("answer", [None, False])
def test_an_empty_answer_is_an_error_with_the_recorded_errors(answer):
    record = RecordState()
    record.note("a warning", is_error=False)
    record.note("[x.cpp::run::12] Error Code 4: no tactic", is_error=True)
    with pytest.raises(SdkError, match=r"^TensorRT failed to build: Error Code 4: no tactic$"):
        record.expect(answer, "build")


def test_warnings_count_where_there_is_no_error():
    record = RecordState()
    record.note("a warning", is_error=False)
    assert record.take() == "a warning"
    assert record.take() == "it gave no reason", "what was taken is forgotten"


def test_the_last_messages_are_kept_and_texts_are_bounded():
    record = RecordState()
    for number in range(MAX_MESSAGES * 2):
        record.note(f"{number} " + "x" * 30, is_error=True)
    said = record.take()
    assert said.startswith(f"{MAX_MESSAGES} ")
    assert len(said) <= MAX_MESSAGE


def test_places_in_source_code_are_left_out():
    text = (
        "Importer.cpp:151: ERROR: ops.cpp:11 In function checkDet:\n[8] false (In f at /_src/a/b.cpp:25 (cudaError 35))"
    )
    assert stripped(text) == "ERROR: [8] false (cudaError 35)"


def test_what_is_said_to_a_thread_goes_to_the_record_that_listens_there():
    listeners, first, second = ListenersState(), RecordState(), RecordState()
    for record in (first, second):
        listeners.add(record)
        listeners.listen(record)
    listeners.note("of the second", is_error=True)
    assert (first.take(), second.take()) == ("it gave no reason", "of the second")


def test_what_the_sdks_own_threads_say_goes_to_all():
    listeners, first, second = ListenersState(), RecordState(), RecordState()
    listeners.add(first)
    listeners.add(second)
    listeners.listen(first)
    worker = threading.Thread(target=lambda: listeners.note("from a worker", is_error=True))
    worker.start()
    worker.join()
    assert (first.take(), second.take()) == ("from a worker", "from a worker")


def test_a_failed_build_has_its_words_although_another_object_of_the_sdk_lives(rtx):
    """TensorRT keeps the first logger of a process: what it says later must find its way all the same."""
    earlier = RecordState()
    runtime = rtx.module.Runtime(rtx.logger(earlier))
    with pytest.raises(SdkError, match=r"read a model: .*"), warnings.catch_warnings():
        parse(rtx, Program(b"no model", {}, (), ()))
    assert "it gave no reason" in earlier.take()
    del runtime


def test_exceptions_of_the_bindings_are_errors_with_what_was_said():
    record = RecordState()
    record.note("out of range", is_error=True)

    def fail():
        raise ValueError("bad argument")

    with pytest.raises(SdkError, match="failed to bound: bad argument; out of range"):
        record.attempt("bound", fail)
