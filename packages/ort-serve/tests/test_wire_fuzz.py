"""Bytes on the wire by chance: framing, pipelines, trailers, encodings, clients that leave at any point.

Each answer is a 200 or a 4xx with a sentence, none comes before its turn, and the server keeps the memory it had.
A few hundred connections; 3,000 with ``--every-case``.
"""

from __future__ import annotations

import gzip
import json
import random
import socket
import struct
import time

import httpx
import psutil
import pytest
from serve_fixtures import ECHO_TYPES, echo_text, running_server, write_model

from ort_serve.server_settings import Limits

COUNT, EVERY = 300, 3_000
GROWTH = 64 << 20  # bytes: a leak of one body a connection would be far more
TYPES = ("FP32", "BF16", "BYTES", "INT64", "BOOL")
LITERALS = (
    "NaN", "-Infinity", "1e999", "1" * 400, "null", "true", '"\\ud800"', "[]", "-0", "1.5", "18446744073709551616",
    "9007199254740993", "[1,[2]]", "0x1", "01", "None",
)  # fmt: skip
SHAPES = ("[-1,4]", "[1,-4]", "[4611686018427387904,4]", "[4294967296,4294967296]", "[1.0,4]", "[]", "null", "[0,4]")
SIZES = ("-1", "0", "2147483648", "18446744073709551616", "1.5", '"16"', "true", "null")
LENGTHS = ("+5", "-5", "5 5", "0x5", "5,5", "18446744073709551616", "")
CODINGS = ("Chunked", "chunked, chunked", "gzip, chunked", "identity", "xchunked")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name in TYPES:
        write_model(echo_text(ECHO_TYPES[name]), root / f"echo_{name}" / "1" / "model.onnx")
    with running_server(root, limits=Limits(body_nbytes=4 << 20, read_s=5.0)) as running:
        yield running


def inference(generator: random.Random, wildness: float) -> tuple[str, bytes, bytes]:
    """Return a type's name, a request's JSON, and the bytes behind it; parts of it are odd with that probability."""

    def pick(sound: str, odd: tuple[str, ...]) -> str:
        return generator.choice(odd) if generator.random() < wildness else sound

    name = generator.choice(TYPES)
    element = '"é"' if name == "BYTES" else "1"
    parts = ['"name":"x"', f'"datatype":"{name}"', f'"shape":{pick("[1,4]", SHAPES)}']
    behind = b""
    if name == "FP32" and generator.random() < 0.5:
        behind = generator.randbytes(16)
        parts.append(f'"parameters":{{"binary_data_size":{pick("16", SIZES)}}}')
    else:
        parts.append(f'"data":[{",".join(pick(element, LITERALS) for _ in range(4))}]')
    if generator.random() < wildness:  # a name twice
        parts.append(generator.choice(parts))
    generator.shuffle(parts)
    return name, f'{{"inputs":[{{{",".join(parts)}}}]}}'.encode(), behind


def chunked(generator: random.Random, raw: bytes, wildness: float) -> bytes:
    found = b""
    while raw:
        part, raw = raw[: (size := generator.randint(1, len(raw)))], raw[size:]
        length = (
            b"%x" % len(part) if generator.random() >= wildness else generator.choice((b"g", b"-1", b"f" * 17, b""))
        )
        extension = b";a=" + b"v" * 200 if generator.random() < wildness else b""
        found += length + extension + b"\r\n" + part + b"\r\n"
    trailers = generator.choice((b"X: 1\r\n", b"Content-Length: 5\r\n", b"no trailer\r\n", b"X: 1\r\n" * 200))
    return found + b"0\r\n" + (trailers if generator.random() < wildness else b"") + b"\r\n"


def framed(generator: random.Random) -> bytes:
    """Return a request: mostly sound, or odd in one or many places."""
    wildness = generator.choice((0.0, 0.0, 0.05, 0.3))
    name, text, behind = inference(generator, wildness)
    body = text + behind
    lines = [f"POST /v2/models/echo_{name}/infer HTTP/1.1", "Host: x"]
    if behind:
        lines.append(f"Inference-Header-Content-Length: {len(text)}")
    if generator.random() < wildness:
        lines.append("Content-Encoding: gzip")
        body = generator.choice((gzip.compress(body), gzip.compress(b" " * (8 << 20)), gzip.compress(body)[:-3], body))
    if generator.random() < wildness:
        lines += [f"X-{number}: y" for number in range(generator.choice((1, 100, 2000)))]
    kind = generator.random()
    if kind < 0.6:
        lines.append(f"Content-Length: {len(body)}")
    elif kind < 0.85 or generator.random() >= wildness:
        lines.append("Transfer-Encoding: chunked")
        body = chunked(generator, body, wildness)
    elif kind < 0.95:
        lines.append(f"Content-Length: {generator.choice(LENGTHS)}")
    else:
        lines += [f"Content-Length: {len(body)}", f"Transfer-Encoding: {generator.choice(CODINGS)}"]
        body = chunked(generator, body, wildness)
    return "\r\n".join([*lines, "", ""]).encode() + body


def exchanged(generator: random.Random, port: int, sent: bytes) -> bytes:
    """Send in pieces, maybe not all, and return what comes until the end; nothing where this side left first."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        try:
            left = generator.random()
            whole = sent if left > 0.1 else sent[: generator.randrange(len(sent))]
            for _ in range(generator.choice((0, 0, 0, 5))):
                size = generator.randint(0, len(whole))
                connection.sendall(whole[:size])
                whole = whole[size:]
            connection.sendall(whole)
            if left > 0.9:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return b""  # a reset
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it was refused before all was sent
        found = b""
        try:
            while part := connection.recv(1 << 16):
                found += part
        except ConnectionError:
            pass
    return found


def answers(found: bytes) -> list[tuple[int, bytes]]:
    """Return statuses and bodies; the last may be cut off by a reset."""
    parted = []
    while found:
        head, _, rest = found.partition(b"\r\n\r\n")
        status, _, fields = head.partition(b"\r\n")
        assert status.startswith(b"HTTP/1.1 "), found[:500]
        length = next(
            int(line.partition(b":")[2]) for line in fields.lower().split(b"\r\n") if line.startswith(b"content-length")
        )
        parted.append((int(status.split()[1]), rest[:length]))
        found = rest[length:]
    return parted


def test_whatever_comes_each_request_has_an_answer_in_its_turn_or_none(server, request):
    count = EVERY if request.config.getoption("--every-case", default=False) else COUNT
    generator = random.Random(20261128)
    process = psutil.Process()
    statuses: list[int] = []
    for number in range(count):
        sent = [framed(generator) for _ in range(generator.choice((1, 1, 1, 2, 5)))]
        found = answers(exchanged(generator, server.server.http_port, b"".join(sent)))
        assert len(found) <= len(sent) + 1, (number, sent, found)
        for place, (status, body) in enumerate(found):
            assert status == 200 or 400 <= status < 500, (number, sent, body)
            assert status == 200 or len(json.loads(body)["error"]) > 10, (number, body)
            assert status != 431 or place == len(found) - 1, (number, found)
        statuses += [status for status, _ in found]
        if number == count // 4:
            before = process.memory_info().rss
    assert statuses.count(200) > count // 4
    assert len(statuses) - statuses.count(200) > count // 4
    assert process.memory_info().rss - before < GROWTH
    until = time.monotonic() + 60
    while server.server.state.body_budget.held and time.monotonic() < until:
        time.sleep(0.01)  # the last client may have left while its body was decompressed
    assert server.server.state.body_budget.held == 0
    assert httpx.get(f"http://{server.http}/v2/health/live").status_code == 200
