"""Recording: an empty answer becomes an error with the words that came before it."""

import pytest

from ort_ep_tensorrt.recording import MAX_MESSAGE, MAX_MESSAGES, RecordState, SdkError, stripped


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
