"""A port belongs to one server, on each system by the option that says so there."""

from __future__ import annotations

import errno
import socket
import sys

import pytest

from ort_serve.ports import bound_socket, check_port


def test_port_that_another_program_listens_at_is_refused_with_advice() -> None:
    with bound_socket("127.0.0.1", 0, "HTTP") as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"cannot listen at 127\.0\.0\.1:{port} for HTTP.*--http-port") as caught:
            check_port("127.0.0.1", port, "HTTP")
    assert caught.value.errno == errno.EADDRINUSE


@pytest.mark.parametrize(
    ("system", "is_shared", "asked"),
    [
        ("win32", False, ["SO_EXCLUSIVEADDRUSE"]),
        ("linux", False, ["SO_REUSEADDR"]),
        ("linux", True, ["SO_REUSEADDR", "SO_REUSEPORT"]),
    ],
)
def test_on_windows_no_other_program_may_bind_the_port_too(
    system: str, is_shared: bool, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"SO_EXCLUSIVEADDRUSE": -5, "SO_REUSEADDR": -6, "SO_REUSEPORT": -7}
    for name, number in options.items():
        monkeypatch.setattr(socket, name, number, raising=False)
    found: list[int] = []

    class Recorded(socket.socket):
        """A socket that notes what is asked of it."""

        def setsockopt(self, level: int, name: int, value: int) -> None:
            assert (level, value) == (socket.SOL_SOCKET, 1)
            found.append(name)

    monkeypatch.setattr(socket, "socket", Recorded)
    monkeypatch.setattr(sys, "platform", system)
    bound_socket("127.0.0.1", 0, "HTTP", is_shared=is_shared).close()
    assert found == [options[name] for name in asked]
