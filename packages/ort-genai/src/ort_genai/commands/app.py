"""``ort genai``: build, run and compare language models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ort_genai.builder.precision_names import CacheType, Method, Precision

app = typer.Typer(help="Language models: build, run, compare, talk, serve.", no_args_is_help=True, add_completion=False)
Folder = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder with genai_config.json.")]


@app.command()
def build(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A .gguf file, or a folder with .safetensors.")],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write.")],
    precision: Annotated[Precision, typer.Option(help="Of weights.")] = Precision.INT4,
    block_size: Annotated[int, typer.Option(help="Weights that share a scale.")] = 32,
    method: Annotated[Method, typer.Option(help="How numbers of 4 bits are found.")] = Method.REAL,
    symmetric: Annotated[bool, typer.Option("--symmetric", help="No zero points.")] = False,
    accuracy_level: Annotated[
        int, typer.Option(help="Of MatMulNBits; 2: activations of 16 bits where faster, 4: of 8 bits.")
    ] = 2,
    head_bits: Annotated[int, typer.Option(help="Bits of the table of tokens in int4 and int8; 0: floats.")] = 8,
    context: Annotated[int | None, typer.Option(help="Longest context; default: the model's.")] = None,
    hidden_states: Annotated[bool, typer.Option("--hidden-states", help="Give vectors, too: for embeddings.")] = False,
    caches: Annotated[CacheType | None, typer.Option(help="Type of caches; default: that of activations.")] = None,
) -> None:
    """Write a model that ort-genai and onnxruntime-genai run, from trained weights, without torch."""
    from rich.console import Console
    from rich.progress import Progress

    from ort_genai.builder.build import BuildOptions
    from ort_genai.builder.build import build as build_folder
    from ort_genai.commands.interrupted import told_where_interrupted

    options = BuildOptions(
        precision, block_size, method, symmetric, accuracy_level, head_bits, context, hidden_states, caches
    )  # fmt: skip
    console = Console(stderr=True)
    with told_where_interrupted(output), Progress(console=console, transient=True) as progress:
        task = progress.add_task("layers", total=None)
        made = build_folder(
            source, output, options, lambda done, whole: progress.update(task, completed=done, total=whole)
        )
    size = sum(each.stat().st_size for each in output.iterdir()) / 1e6
    console.print(f"{output}: {made.type}, {made.num_layers} layers, {precision}, {size:.0f} MB")


@app.command()
def caches(
    model: Folder,
    output: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write.")],
    to: Annotated[CacheType, typer.Option(help="Type of the caches.")] = CacheType.INT8,
) -> None:
    """Copy a built folder with caches of another type: half floats take half of float32's memory, int8 a quarter."""
    from ort_genai.builder.cache_types import write_with_caches
    from ort_genai.commands.interrupted import told_where_interrupted

    with told_where_interrupted(output):
        write_with_caches(model, output, to)


@app.command()
def run(
    model: Folder,
    prompt: Annotated[str, typer.Argument(metavar="TEXT", help="What to ask.")],
    tokens: Annotated[int, typer.Option("--tokens", "-n", help="Longest answer.", min=1)] = 256,
    raw: Annotated[bool, typer.Option("--raw", help="Go on with the text itself, without the chat template.")] = False,
    temperature: Annotated[float, typer.Option(help="0: the most likely tokens.", min=0)] = 0.0,
    seed: Annotated[int, typer.Option(help="Of draws.")] = 0,
) -> None:
    """Answer one prompt."""
    from ort_genai.commands.answers import write_answer

    write_answer(model, prompt, tokens=tokens, is_raw=raw, temperature=temperature, seed=seed)


@app.command()
def chat(
    model: Folder,
    system: Annotated[str, typer.Option(help="What the model is told first.")] = "",
    tokens: Annotated[int, typer.Option("--tokens", "-n", help="Longest answer.", min=1)] = 1024,
    temperature: Annotated[float, typer.Option(help="0: the most likely tokens.", min=0)] = 0.7,
    seed: Annotated[int | None, typer.Option(help="Of draws; default: another one each time.")] = None,
) -> None:
    """Talk to a model in the terminal; an empty line or the end of the input ends it."""
    from ort_genai.commands.talk import talk

    talk(model, system=system, tokens=tokens, temperature=temperature, seed=seed)


@app.command()
def transcribe(
    model: Folder,
    sounds: Annotated[list[Path], typer.Argument(metavar="AUDIO", help="Files of sound; several.")],
    language: Annotated[str, typer.Option(help="Of what is said, 'en'; default: as it is heard.")] = "",
    task: Annotated[str, typer.Option(help="'transcribe', or 'translate' into English.")] = "transcribe",
    times: Annotated[bool, typer.Option("--times", help="Write pieces with their times.")] = False,
) -> None:
    """Write down what is said in files of sound, with a Whisper."""
    from ort_genai.commands.hearing import write_transcripts

    write_transcripts(model, sounds, language=language, task=task, has_times=times)


@app.command()
def verify(
    first: Annotated[Path, typer.Argument(metavar="A", help="A folder with genai_config.json.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another one with the same tokenizer.")],
    prompt: Annotated[list[str] | None, typer.Option("--prompt", help="Text to go on with; several times.")] = None,
    tokens: Annotated[int, typer.Option("--tokens", "-n", help="Tokens of each text.", min=1)] = 32,
    engine: Annotated[str, typer.Option(help="What runs B: ort-core or onnxruntime.")] = "ort-core",
) -> None:
    """Compare two folders (or one in two engines): greedy tokens, logits, where they part first."""
    from ort_genai.commands.comparison import show_comparison

    if not show_comparison(first, second, prompts=prompt, tokens=tokens, engine=engine):
        raise typer.Exit(1)


@app.command()
def serve(
    model: Folder,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)] = 8000,
    name: Annotated[str, typer.Option(help="The model's name for clients; default: the folder's.")] = "",
    api_key: Annotated[str, typer.Option(envvar="ORT_GENAI_API_KEY", help="That clients must send.")] = "",
    max_batch: Annotated[int, typer.Option(help="Requests that run at once.", min=1)] = 8,
    max_waiting: Annotated[int, typer.Option(help="Requests that wait.", min=1)] = 256,
    cache_megabytes: Annotated[int, typer.Option(help="For caches of running requests.", min=1)] = 4096,
    adapter: Annotated[
        list[str] | None, typer.Option(metavar="NAME=FILE", help="LoRA weights, served as a model; several times.")
    ] = None,
    draft: Annotated[str, typer.Option(help="Guess tokens: 'ngrams', or the folder of a smaller model.")] = "",
    reranker: Annotated[str, typer.Option(help="Folder of a model that scores pairs of texts, for /v1/rerank.")] = "",
) -> None:
    """Serve a model behind OpenAI's routes, with a page to talk to it."""
    from ort_genai.commands.serving import Serving, serve_model
    from ort_genai.engine.options import EngineOptions

    limits = EngineOptions(max_batch=max_batch, max_waiting=max_waiting, cache_bytes=cache_megabytes << 20)
    options = Serving(host, port, name or model.resolve().name, api_key, tuple(adapter or ()), draft, reranker)
    serve_model(model, options, limits)
