"""What a provider changed of its process is told in words."""

import os
import sys

import numpy as np
import pytest

from ort_conformance.process_facts import changes_by


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (lambda: np.seterr(over="raise"), "numpy's handling of errors was"),
        (lambda: os.environ.update(ACME_DEVICE="1"), "the environment was"),
        (lambda: sys.path.append("/acme"), "sys.path was"),
        (lambda: np.random.seed(3), "the state of numpy's random numbers was"),  # noqa: NPY002 - what is told
        (lambda: print("ready"), "standard output has 'ready"),  # noqa: T201 - what is told
        (lambda: sys.stderr.write("careful"), "the stream of errors has 'careful"),
    ],
    ids=["errors", "environment", "path", "random", "output", "messages"],
)
def test_a_change_is_told(work, words, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    state = np.random.get_state()  # noqa: NPY002 - given back
    with np.errstate():
        (change,) = changes_by(work)
    np.random.set_state(state)  # noqa: NPY002 - given back
    assert words in change


def test_nothing_is_told_of_work_that_changes_nothing():
    assert changes_by(lambda: np.arange(3).sum()) == []
