"""Recognize held-out handwritten digits: each as a picture, what the network says beside the truth, where it ran.

    python examples/digits/demo.py [--count 3] [--runs 200] [--provider NAME ...]

The network and the digits lie beside this file; ``train_digits.py`` made them. None of the digits was trained on.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

HERE = Path(__file__).resolve().parent
MODEL = HERE / "digits.onnx"
SHADES = " ░▒▓█"
ASCII_SHADES = " .+#@"  # for terminals without Unicode


class Session(Protocol):
    """What the demo uses of an inference session; onnxruntime's has it too."""

    def run(self, output_names: Sequence[str] | None, input_feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Return the outputs for named inputs."""


@dataclass(frozen=True)
class HeldOut:
    """Digits that the network has never seen: images [n, 8, 8] of grey levels 0 to 16, and what they show."""

    images: np.ndarray
    labels: np.ndarray


def load_held_out() -> HeldOut:
    """Return the held-out digits that lie beside this file."""
    with np.load(HERE / "held_out.npz") as stored:
        return HeldOut(stored["images"], stored["labels"].astype(np.int64))


def probabilities(session: Session, images: np.ndarray) -> np.ndarray:
    """Return the probability of each of the ten digits for each image: [n, 8, 8] -> [n, 10]."""
    return session.run(["probabilities"], {"image": images[:, None].astype(np.float32)})[0]


def median_latency_ms(session: Session, image: np.ndarray, runs: int) -> float:
    """Return the median time of recognizing one image, over ``runs`` runs after a tenth as many to warm up."""
    feeds = {"image": image[None, None].astype(np.float32)}
    times = []
    for run in range(-(runs // 10), runs):
        start = time.perf_counter_ns()
        session.run(None, feeds)
        if run >= 0:
            times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / 1e6


def picture(image: np.ndarray, shades: str = SHADES) -> str:
    """Return an image as lines of characters, two to a pixel, darker for higher grey levels."""
    levels = image.astype(int) * (len(shades) - 1) // 16
    return "\n".join("".join(shades[level] * 2 for level in row) for row in levels)


def verdict(shares: np.ndarray, truth: int, bar: str) -> Text:
    """Return the three most probable digits with their probabilities, and whether the first is the truth."""
    likeliest = [int(digit) for digit in np.argsort(-shares)[:3]]
    right = likeliest[0] == truth
    text = Text(f"predicted {likeliest[0]}, truth {truth}: ")
    text.append("right" if right else "wrong", style="bold green" if right else "bold red")
    text.append("\n")
    for digit in likeliest:
        text.append(f"\n{digit}  {shares[digit]:7.2%}  {bar * round(20 * float(shares[digit]))}")
    return text


def show(console: Console, session: Session, digits: HeldOut, count: int) -> None:
    """Print some digits with what the network says of them, then the accuracy on all of them."""
    shares = probabilities(session, digits.images)
    shades = SHADES if console.encoding.lower().startswith("utf") else ASCII_SHADES
    for image, share, label in list(zip(digits.images, shares, digits.labels))[:count]:
        drawn = Panel(Text(picture(image, shades)), expand=False)
        console.print(Columns([drawn, verdict(share, int(label), shades[-1])], padding=(0, 4)))
    right = int((shares.argmax(1) == digits.labels).sum())
    console.print(f"{right} of {len(digits.labels)} held-out digits recognized ({right / len(digits.labels):.2%})\n")


def folded(text: str, width: int) -> str:
    """Return a text whose long lines are cut at spaces, the rest of each indented below it."""
    return "\n".join(
        textwrap.fill(line, width, subsequent_indent=" " * (len(line) - len(line.lstrip()) + 2))
        for line in text.splitlines()
    )


def positive(text: str) -> int:
    """Read a whole number of at least 1 from the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit status."""
    import ort_core as ort  # here, so that the functions above can be used with any session

    parser = argparse.ArgumentParser(description="Recognize held-out handwritten digits.")
    parser.add_argument("--count", type=positive, default=3, help="digits to show (default: 3)")
    parser.add_argument("--runs", type=positive, default=200, help="runs to take the median latency of (default: 200)")
    parser.add_argument("--provider", action="append", help="execution provider to ask for; may be repeated")
    options = parser.parse_args(arguments)

    console = Console()
    session = ort.InferenceSession(MODEL, providers=options.provider or ["CPUExecutionProvider"])
    digits = load_held_out()
    show(console, session, digits, options.count)
    console.print(Text(folded(str(session.explain()), console.width)))
    latency = median_latency_ms(session, digits.images[0], options.runs)
    console.print(f"\nlatency: {latency:.3f} ms for one digit (median of {options.runs} runs)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
