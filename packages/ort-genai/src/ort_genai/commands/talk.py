"""A conversation in the terminal."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from ort_core.cli.control_characters import shown
from ort_genai.engine.engine import AsyncEngine
from ort_genai.engine.options import EngineOptions
from ort_genai.engine.requests import GenerationOptions
from ort_genai.model import Model


def talk(folder: Path, *, system: str, tokens: int, temperature: float, seed: int | None) -> None:
    """Ask for lines and write answers; an interrupt ends an answer, an empty line the conversation."""
    console = Console(highlight=False)
    messages = [{"role": "system", "content": system}] if system else []
    one_text = EngineOptions(max_batch=1, uses_blocks=False)  # blocks are for many
    with AsyncEngine(Model(folder), one_text) as engine:
        text = engine.model.text
        while True:
            try:
                line = console.input("[bold]> [/]") if sys.stdin.isatty() else input()
            except (EOFError, KeyboardInterrupt):
                return
            if not line.strip():
                return
            messages.append({"role": "user", "content": line})
            options = GenerationOptions(max_tokens=tokens, temperature=temperature, seed=seed)
            request = engine.submit(text.chat_tokens(messages), options)
            pieces = []
            try:
                for piece in request:
                    pieces.append(piece.text)
                    console.print(escape(shown(piece.text)), end="", soft_wrap=True)
            except KeyboardInterrupt:
                request.cancel()
            console.print()
            messages.append({"role": "assistant", "content": "".join(pieces)})
