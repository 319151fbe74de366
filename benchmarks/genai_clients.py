"""64 clients of `ort genai serve` for some minutes: equal texts, cancels, memory, longest wait.

    python benchmarks/genai_clients.py FOLDER --clients 64 --seconds 300

Every client asks for one of a few texts, drawn with a seed, streamed or whole, and compares it with what came before
the others began, when it was asked for alone; one in five goes away in the middle. Half of the prompts are long and
begin alike. It ends with 1 where a text differs, a request fails, or memory grew.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

BEGINNING = "The harbor of the old town lies between two hills, and ships from many countries come there each summer. "
PROMPTS = (
    "The sea is",
    BEGINNING + "The first ship of the year",
    "Once upon a time",
    BEGINNING + "In winter, when the wind blows from the north and nobody comes, the people of the town",
    "The capital of France is",
    BEGINNING * 2 + "On the left hill",
)
REQUESTS = 40


@dataclass
class Tally:
    """What was seen."""

    texts: dict[str, str] = field(default_factory=dict)
    answers: int = 0
    cancels: int = 0
    faults: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    by_client: dict[int, int] = field(default_factory=dict)


def body_of(number: int, tokens: int) -> dict[str, object]:
    """Return a request by its number."""
    prompt = PROMPTS[number % len(PROMPTS)]
    return {"prompt": prompt, "max_tokens": 1 + number % tokens, "temperature": 0.8, "seed": number, "top_k": 40}


async def one_client(client: httpx.AsyncClient, place: int, end: float, tokens: int, tally: Tally) -> None:
    """Ask until the time is over."""
    draw = random.Random(place)
    while time.monotonic() < end:
        number = draw.randrange(REQUESTS)
        start = time.monotonic()
        try:
            if draw.random() < 0.2:
                await _leave_in_the_middle(client, body_of(number, tokens))
                tally.cancels += 1
                continue
            answer = await client.post("/v1/completions", json=body_of(number, tokens))
            answer.raise_for_status()
        except httpx.HTTPError as error:
            tally.faults.append(f"{type(error).__name__}: {error}")
            continue
        text = answer.json()["choices"][0]["text"]
        if tally.texts[str(number)] != text:
            tally.faults.append(f"request {number}: {text!r} and {tally.texts[str(number)]!r}")
        tally.answers += 1
        tally.by_client[place] = tally.by_client.get(place, 0) + 1
        tally.waits.append(time.monotonic() - start)


async def ask_alone(client: httpx.AsyncClient, tokens: int, tally: Tally) -> None:
    """Ask for each text while nobody else asks."""
    for number in range(REQUESTS):
        answer = await client.post("/v1/completions", json=body_of(number, tokens))
        answer.raise_for_status()
        tally.texts[str(number)] = answer.json()["choices"][0]["text"]


async def _leave_in_the_middle(client: httpx.AsyncClient, body: dict[str, object]) -> None:
    async with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as answer:
        async for _ in answer.aiter_lines():
            return


def resident(process: int) -> float:
    """Return the megabytes of a process, 0 where the system does not tell."""
    status = Path(f"/proc/{process}/status")
    if not status.exists():
        return 0.0
    return next(int(line.split()[1]) / 1e3 for line in status.read_text().splitlines() if line.startswith("VmRSS"))


async def run(url: str, process: int, options: argparse.Namespace) -> bool:
    """Run all clients and tell what was seen; return whether it was as it should be."""
    tally = Tally()
    limits = httpx.Limits(max_connections=options.clients)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
        await ask_alone(client, options.tokens, tally)
        end = time.monotonic() + options.seconds
        clients = [one_client(client, place, end, options.tokens, tally) for place in range(options.clients)]
        asked = asyncio.gather(*clients)
        memory: list[float] = []
        while not asked.done():
            await asyncio.wait([asked], timeout=options.every)
            memory.append(resident(process))
        await asked
        counts = (await client.get("/metrics")).text
    waits = sorted(tally.waits)
    print(f"{tally.answers} answers, {tally.cancels} cancels, {len(tally.faults)} faults {tally.faults[:3]}")
    print(f"answers of a client: {min(tally.by_client.values())} to {max(tally.by_client.values())}; ", end="")
    print(f"waits: median {waits[len(waits) // 2]:.2f} s, longest {waits[-1]:.2f} s")
    print("resident MB:", " ".join(f"{each:.0f}" for each in memory))
    shown = ("ort_genai_running", "ort_genai_waiting")
    print("\n".join(line for line in counts.splitlines() if line.startswith(shown)))
    half = len(memory) // 2
    grew = max(memory[half:], default=0) - max(memory[:half], default=0)
    return not tally.faults and len(tally.by_client) == options.clients and grew < options.growth


def main() -> None:
    """Serve the folder and run the clients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--every", type=float, default=10, help="seconds between two looks at the memory")
    parser.add_argument("--growth", type=float, default=50, help="megabytes that the second half may take more")
    options = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serving = [sys.executable, "-m", "ort_core.cli", "genai", "serve", options.folder, "--port", str(port)]
    with subprocess.Popen(serving, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        url = f"http://127.0.0.1:{port}"
        try:
            while True:
                try:
                    httpx.get(url + "/health", timeout=5)
                    break
                except httpx.HTTPError:
                    time.sleep(0.2)
                if server.poll() is not None:
                    sys.exit("the server ended")
            is_good = asyncio.run(run(url, server.pid, options))
        finally:
            server.terminate()
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
