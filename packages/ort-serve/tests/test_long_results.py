"""Results that take long to write, and clients that are gone before they are told anything."""

from __future__ import annotations

import asyncio
import json
import types

import grpc.aio
import numpy as np
import orjson
import pytest

from ort_serve.failures import InvalidRequest
from ort_serve.protocol.requests import InferResponse, RequestedOutput
from ort_serve.protocol.shared_memory import SharedMemoryRegions
from ort_serve.rest import encoding
from ort_serve.rest.encoding import encode_infer
from ort_serve.rpc.service import _unary

ODD = np.linspace(-1, 1, 3 * encoding._PIECE, dtype=np.float32)
ODD[encoding._PIECE + 3] = np.nan
ODD[-1] = -np.inf


def written(*arrays: np.ndarray) -> tuple[bytes, dict]:
    outputs = [(RequestedOutput(f"y{place}"), array) for place, array in enumerate(arrays)]
    text, length = encode_infer(InferResponse("m", "1", "an id", outputs), False, SharedMemoryRegions())
    assert length is None
    return text, json.loads(text)


@pytest.mark.parametrize("count", [0, 1, encoding._PIECE - 1, encoding._PIECE, encoding._PIECE + 1, 20_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, np.bool_, object])
def test_a_result_is_the_same_text_whether_it_is_written_at_once_or_in_pieces(monkeypatch, count, dtype):
    numbers = np.random.default_rng(count).standard_normal(count)
    array = np.array([f"{n:.3f} ä" for n in numbers], object) if dtype is object else (9 * numbers).astype(dtype)
    in_pieces, found = written(array, array[:2].reshape(-1, 1))
    monkeypatch.setattr(encoding, "_PIECE", 1 << 30)
    assert in_pieces == written(array, array[:2].reshape(-1, 1))[0]
    np.testing.assert_array_equal(np.array(found["outputs"][0]["data"], dtype), array)
    assert (found["outputs"][1]["shape"], found["id"]) == ([min(count, 2), 1], "an id")


@pytest.mark.parametrize("array", [ODD, ODD[: encoding._PIECE + 8], np.array([np.inf, 0.5]), np.float32(np.nan)])
def test_numbers_that_json_lacks_are_written_as_python_writes_them(array):
    found = written(np.asarray(array), np.ones(3, np.float32))[1]
    np.testing.assert_array_equal(np.float32(found["outputs"][0]["data"]), np.asarray(array).reshape(-1))
    assert found["outputs"][1]["data"] == [1, 1, 1]


def test_no_more_than_a_piece_of_a_long_result_is_written_at_once(monkeypatch):
    """Nothing else runs meanwhile: other clients would wait for a second while millions of numbers are written."""
    lengths = []

    def noting(data: object, option: int | None = None) -> bytes:
        lengths.append(len(data) if not isinstance(data, dict) else 0)
        return orjson.dumps(data, option=option)

    monkeypatch.setattr(encoding, "orjson", types.SimpleNamespace(**{**vars(orjson), "dumps": noting}))
    written(np.arange(100_000, dtype=np.float32), np.array(["a"] * 50_000, object))
    assert max(lengths) == encoding._PIECE
    assert sum(lengths) == 150_000


def test_a_client_that_is_gone_before_it_is_told_of_its_fault_is_no_fault_of_the_server():
    async def refuse(message: object) -> object:
        raise InvalidRequest("no such thing")

    class Gone:
        async def abort(self, code: object, told: str) -> None:
            raise grpc.aio.InternalError("nobody is there")  # as grpcio says it

    answer = _unary("ServerLive", refuse).unary_unary
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(answer(None, Gone()))
