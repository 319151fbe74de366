"""Programs written by onnxruntime-genai's documents, run unchanged under it and under the drop-in."""

from __future__ import annotations

import subprocess
import sys
import wave
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from genai_built import built, built_wide
from genai_media_models import sound, write_whisper_checkpoint

from ort_genai.builder.build import BuildOptions, build
from ort_genai.builder.precision_names import Precision

FOLDER = Path(__file__).with_name("genai_programs")
PROGRAMS = tuple(sorted(each.stem for each in FOLDER.glob("*.py")))


class ProgramRuns:
    """Models and sounds of the programs, written once.

    Args:
        work: an empty folder.
    """

    def __init__(self, work: Path) -> None:
        self._work = work

    @cached_property
    def _heard(self) -> list[str]:
        source = write_whisper_checkpoint(self._work / "source")
        build(source, self._work / "whisper", BuildOptions(Precision.FP32))
        paths = []
        for seed in (1, 2):
            path = self._work / f"{seed}.wav"
            with wave.open(str(path), "wb") as made:
                made.setparams((1, 2, 16000, 0, "NONE", ""))
                made.writeframes(np.round(sound(seed, 2.0) * 32767).astype("<i2").tobytes())
            paths.append(str(path))
        return [str(self._work / "whisper"), *paths]

    def arguments(self, program: str) -> list[str]:
        """Return what a program is told."""
        if program == "hear":
            return self._heard
        return [str(built_wide() if program == "guided" else built())]

    def output(self, program: str, before: Sequence[str] = ()) -> str:
        """Return what a program prints.

        Args:
            program: its name.
            before: of the command, between Python and the program.
        """
        command = [sys.executable, *before, str(FOLDER / f"{program}.py"), *self.arguments(program)]
        lines = "where is the man?\nand who\n"
        done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout
