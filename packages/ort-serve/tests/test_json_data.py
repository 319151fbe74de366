"""Integers of JSON are taken as they are, or refused: never rounded."""

from __future__ import annotations

import numpy as np
import orjson
import pytest

from ort_serve.failures import InvalidRequest
from ort_serve.protocol.datatypes import DATATYPES
from ort_serve.protocol.json_data import array_from_json


@pytest.mark.parametrize(
    ("datatype", "text", "expected"),
    [
        ("INT64", "[-9223372036854775808, 9223372036854775807]", [-(2**63), 2**63 - 1]),
        ("INT64", "[9007199254740993, -9007199254740993]", [2**53 + 1, -(2**53) - 1]),
        ("UINT64", "[18446744073709551615, 1]", [2**64 - 1, 1]),
        ("INT64", "[1.0, 9007199254740991]", [1, 2**53 - 1]),
        ("INT32", "[2e3, -2147483648]", [2000, -(2**31)]),
    ],
)
def test_integers_are_taken_as_they_are(datatype, text, expected):
    found = array_from_json("x", DATATYPES[datatype], (2,), orjson.loads(text))
    assert found.dtype == DATATYPES[datatype].dtype
    assert found.tolist() == expected


@pytest.mark.parametrize(
    ("datatype", "text"),
    [
        ("INT64", "[-9223372036854775809, 0]"),  # the reader makes -2**63 of it
        ("INT64", "[9007199254740993, 2.0]"),  # numpy makes 2**53 of it
        ("INT64", "[9223372036854775808, -1]"),
        ("UINT64", "[18446744073709551616, 0]"),
        ("UINT64", "[9223372036854775809, 1.0]"),
        ("INT32", "[2147483648, 0]"),
        ("INT8", "[1.5, 0]"),
    ],
)
def test_integers_that_would_be_rounded_are_refused(datatype, text):
    with pytest.raises(InvalidRequest, match="INT"):
        array_from_json("x", DATATYPES[datatype], (2,), orjson.loads(text))


def test_what_was_read_is_what_numpy_reads():
    values = np.random.default_rng(0).integers(-(2**63), 2**63, 100)
    found = array_from_json("x", DATATYPES["INT64"], (10, 10), orjson.loads(orjson.dumps(values.tolist())))
    assert np.array_equal(found.ravel(), values)
