"""Answers in the terminal, token by token."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import typer

from ort_core.cli.control_characters import shown
from ort_genai.generator import Generator, GeneratorParams
from ort_genai.model import Model
from ort_genai.text import TextStream


def write_answer(folder: Path, prompt: str, *, tokens: int, is_raw: bool, temperature: float, seed: int) -> None:
    """Write the answer to a prompt as it comes."""
    model = Model(folder)
    is_text = is_raw or model.text.template is None
    given = model.text.encode(prompt) if is_text else model.text.chat_tokens([{"role": "user", "content": prompt}])
    params = GeneratorParams(model)
    longest = min(len(given) + tokens, model.decoder.context_length)
    params.set_search_options(
        max_length=longest, do_sample=temperature > 0, temperature=temperature or 1.0, random_seed=seed
    )
    generator = Generator(model, params)
    generator.append_tokens(np.array(given, np.int32))
    stream = TextStream(model.text)
    while not generator.is_done():
        generator.generate_next_token()
        typer.echo(shown(stream.push(int(generator.get_next_tokens()[0]))), nl=False)
    typer.echo(shown(stream.finish()))
