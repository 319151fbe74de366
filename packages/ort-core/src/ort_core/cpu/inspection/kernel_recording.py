"""Kernels noted while programs are built, for whoever wants their text; nobody does in a load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ort_core.cpu.lowering.steps import KernelText

_NOTED: ContextVar[dict[str, KernelText] | None] = ContextVar("noted_kernels", default=None)


def note_kernels(kernels: Mapping[str, KernelText]) -> None:
    """Note the kernels of a program that is built, where somebody asked."""
    noted = _NOTED.get()
    if noted is not None:
        noted.update(kernels)


@contextmanager
def noted_kernels() -> Iterator[dict[str, KernelText]]:
    """Collect the kernels of the programs that are built meanwhile in this thread, by name."""
    found: dict[str, KernelText] = {}
    token = _NOTED.set(found)
    try:
        yield found
    finally:
        _NOTED.reset(token)
