"""``ort serve``: put models behind HTTP and gRPC."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ort_serve.server_settings import ServerSettings

_LISTENING = "Listening"
_MODELS = "Models"
_SAFETY = "Safety"
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _no_nan(value: float | None) -> float | None:
    """Refuse what is not a number, which typer before 0.29 does not find too small."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a number of seconds")
    return value


def serve(
    models: Annotated[
        Path,
        typer.Argument(
            metavar="MODELS",
            help="A model file, served under the name of the file, or a folder with NAME/VERSION/model.onnx.",
        ),
    ],
    host: Annotated[
        str, typer.Option(rich_help_panel=_LISTENING, help="Address to listen on; 0.0.0.0 for all interfaces.")
    ] = "127.0.0.1",
    http_port: Annotated[
        int,
        typer.Option(min=-1, max=65535, rich_help_panel=_LISTENING, help="0 picks a free port, -1 turns HTTP off."),
    ] = 8000,
    grpc_port: Annotated[
        int,
        typer.Option(min=-1, max=65535, rich_help_panel=_LISTENING, help="0 picks a free port, -1 turns gRPC off."),
    ] = 8001,
    sockets: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            exists=True,
            file_okay=False,
            rich_help_panel=_LISTENING,
            help="Listen on FOLDER/http.sock and FOLDER/grpc.sock instead of ports (not on Windows).",
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            min=1,
            rich_help_panel=_LISTENING,
            help="Number of processes; they share the ports and the memory of mapped weights (not on Windows).",
        ),
    ] = 1,
    watch: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0.1,
            callback=_no_nan,
            rich_help_panel=_MODELS,
            help="Check the folder for new versions that often.",
        ),
    ] = None,
    allow_loading: Annotated[
        bool, typer.Option("--allow-loading", rich_help_panel=_MODELS, help="Let requests load and unload models.")
    ] = False,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            rich_help_panel=_MODELS,
            help="Such as 4G: when the loaded models exceed it, the least recently used ones are unloaded.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            rich_help_panel=_SAFETY,
            help="File whose first line is the bearer token that requests must send.",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, rich_help_panel=_SAFETY, help="Certificate chain (PEM).")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, rich_help_panel=_SAFETY, help="Private key (PEM).")
    ] = None,
    tls_clients: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            rich_help_panel=_SAFETY,
            help="CA certificates (PEM); clients must present a certificate signed by one of them.",
        ),
    ] = None,
    max_body: Annotated[
        str, typer.Option(metavar="SIZE", rich_help_panel=_SAFETY, help="Largest request, also after decompression.")
    ] = "256M",
    max_result: Annotated[
        str, typer.Option(metavar="SIZE", rich_help_panel=_SAFETY, help="Largest result, in bytes of its tensors.")
    ] = "1G",
    max_run: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", rich_help_panel=_SAFETY, help="Most memory of one run.", show_default="a quarter of it all"
        ),
    ] = None,
    read_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0.1,
            callback=_no_nan,
            rich_help_panel=_SAFETY,
            help="Time in which a request must arrive.",
        ),
    ] = 60.0,
    shared_memory: Annotated[
        bool | None,
        typer.Option(
            "--shared-memory/--no-shared-memory",
            rich_help_panel=_SAFETY,
            help="Let clients register shared memory; by default only if the server listens on loopback.",
        ),
    ] = None,
    otel: Annotated[
        bool, typer.Option("--otel", help="Export OpenTelemetry spans of requests as the OTEL_* variables say.")
    ] = False,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Write one line of JSON per request to stderr.")
    ] = False,
) -> None:
    """Serve models by the Open Inference Protocol (KServe v2) over HTTP and gRPC."""
    from ort_serve.access_log import log_to_stderr
    from ort_serve.server_settings import Limits, ServerSettings, Tls

    if (tls_certificate is None) != (tls_key is None) or (tls_clients is not None and tls_key is None):
        raise typer.BadParameter("--tls-certificate and --tls-key go together; --tls-clients needs both")
    if workers > 1 and (allow_loading or shared_memory):
        raise typer.BadParameter(
            "with several workers a request reaches only one of them: use --watch instead of --allow-loading, "
            "and leave out --shared-memory"
        )
    if http_port < 0 and grpc_port < 0:
        raise typer.BadParameter("both HTTP and gRPC are turned off")
    if sockets is None and http_port == grpc_port > 0:
        raise typer.BadParameter(f"HTTP and gRPC cannot share port {http_port}; give --grpc-port another one")
    if not models.exists():
        raise typer.BadParameter(f"there is no {models}")
    settings = ServerSettings(
        host=host,
        http_port=http_port if http_port >= 0 else None,
        grpc_port=grpc_port if grpc_port >= 0 else None,
        sockets=sockets,
        token=None if token_file is None else _token(token_file),
        tls=None if tls_certificate is None or tls_key is None else Tls(tls_certificate, tls_key, tls_clients),
        allows_loading=allow_loading,
        watch_s=watch,
        memory_limit=None if memory_limit is None else nbytes_of(memory_limit),
        shared_memory=shared_memory,
        has_traces=otel,
        has_access_log=access_log,
        limits=Limits(
            body_nbytes=nbytes_of(max_body),
            result_nbytes=nbytes_of(max_result),
            run_nbytes=None if max_run is None else nbytes_of(max_run),
            read_s=read_timeout,
        ),
    )
    log_to_stderr("", is_access=access_log)
    _start(models, settings, workers)


def nbytes_of(text: str) -> int:
    """Return the bytes that a size such as ``256M`` means.

    Raises:
        typer.BadParameter: it is no such size, or less than one byte.
    """
    digits, unit = text.strip().lower().removesuffix("b"), 1
    if digits and digits[-1] in _UNITS:
        digits, unit = digits[:-1], _UNITS[digits[-1]]
    try:
        found = int(float(digits) * unit)
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"{text!r} is not a size; write 500K, 256M or 4G") from error
    if found < 1:
        raise typer.BadParameter(f"{text!r} is less than one byte; write 500K, 256M or 4G")
    return found


def _token(file: Path) -> str:
    found = file.read_text(encoding="utf-8").partition("\n")[0].strip()
    if not found:
        raise typer.BadParameter(f"{file} is empty; its first line is the token")
    return found


def _start(models: Path, settings: ServerSettings, workers: int) -> None:
    from ort_serve.failures import InvalidRequest
    from ort_serve.running import run_server
    from ort_serve.workers import run_workers

    try:
        if workers > 1:
            if os.name == "nt":
                raise typer.BadParameter("several processes cannot share a port on Windows; leave --workers out")
            run_workers(models, settings, workers)
        else:
            run_server(models, settings, is_told=True)
    except (InvalidRequest, OSError, ModuleNotFoundError) as error:
        advice = ": `pip install ort-serve[otel]`" if "opentelemetry" in str(error) else ""
        told = str(error)
        if isinstance(error, OSError) and error.strerror and error.filename is None:
            told = error.strerror  # without a number that tells nothing
        typer.echo(f"ort serve: {told}{advice}", err=True)
        raise typer.Exit(1) from error
