"""``ort genai transcribe``: what is said in files of sound."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ort_genai.media.audios import Audios
from ort_genai.media.transcription import Segment, Transcriber
from ort_genai.model import Model


def write_transcripts(folder: Path, sounds: Sequence[Path], *, language: str, task: str, has_times: bool) -> None:
    """Write the text of each file, under its name where there are several."""
    console, transcriber = Console(soft_wrap=True), Transcriber(Model(folder))
    for path in sounds:
        found = transcriber.transcribe(Audios.open(path), language=language, task=task, has_times=has_times)[0]
        if len(sounds) > 1:
            console.print(f"{path}:", markup=False, highlight=False)
        lines = [_line(each) for each in found.segments] if has_times else [found.text]
        for line in lines:
            console.print(line.strip(), markup=False, highlight=False)


def _line(segment: Segment) -> str:
    end = "" if segment.end is None else f"{segment.end:.2f}"
    return f"[{segment.start:.2f} - {end}] {segment.text.strip()}"
