"""A server in this process, until it is told to end."""

from __future__ import annotations

from pathlib import Path

from ort_core.errors import NotImplemented
from ort_genai.engine.engine import Engine, EngineOptions
from ort_genai.model import Model


def serve_model(folder: Path, *, host: str, port: int, name: str, api_key: str, limits: EngineOptions) -> None:
    """Serve a model.

    Raises:
        NotImplemented: the server's packages are not installed.
    """
    try:
        import uvicorn

        from ort_genai.server.app import ServerOptions, application
    except ModuleNotFoundError as error:
        raise NotImplemented(f"`ort genai serve` needs {error.name}: pip install ort-genai[serve]") from error
    engine = Engine(Model(folder), limits)
    try:
        uvicorn.run(application(engine, ServerOptions(name, api_key)), host=host, port=port, ws="none")
    finally:
        engine.close()
