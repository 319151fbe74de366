"""A server in this process, until it is told to end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ort_core.errors import InvalidArgument, NotImplemented
from ort_genai.cross_encoder import CrossEncoder
from ort_genai.engine.drafts import Drafter, ModelDrafter, NgramDrafter
from ort_genai.engine.engine import AsyncEngine
from ort_genai.engine.options import EngineOptions
from ort_genai.model import Adapters, Model

_WITH_IMAGES = 32 << 20  # bytes of a request; a photograph has 2 to 10 MB, and a third more in base64


@dataclass(frozen=True, slots=True)
class Serving:
    """Where and as what a model is served.

    Attributes:
        host: address to listen on.
        port: to listen on.
        name: of the model, for clients.
        api_key: that clients must send; empty: none.
        adapters: ``NAME=FILE`` of each.
        draft: ``ngrams``, the folder of a smaller model, or empty.
        reranker: folder of a model that scores pairs of texts, or empty.
    """

    host: str
    port: int
    name: str
    api_key: str = ""
    adapters: tuple[str, ...] = ()
    draft: str = ""
    reranker: str = ""


def serve_model(folder: Path, options: Serving, limits: EngineOptions) -> None:
    """Serve a model.

    Raises:
        NotImplemented: the server's packages are not installed.
        InvalidArgument: an adapter is not written ``NAME=FILE``, or takes the model's name.
    """
    try:
        import uvicorn

        from ort_genai.server.app import ServerOptions, application
    except ModuleNotFoundError as error:
        raise NotImplemented(f"`ort genai serve` needs {error.name}: pip install ort-genai[serve]") from error
    model = Model(folder)
    engine = AsyncEngine(model, limits, adapters=_adapters(model, options), drafter=_drafter(options.draft))
    try:
        served = ServerOptions(options.name, options.api_key)
        served = served if model.vision is None else replace(served, max_body=_WITH_IMAGES)
        made = application(engine, served, CrossEncoder(options.reranker) if options.reranker else None)
        uvicorn.run(made, host=options.host, port=options.port, ws="none")
    finally:
        engine.close()


def _adapters(model: Model, options: Serving) -> Adapters:
    found = Adapters(model)
    for text in options.adapters:
        name, is_pair, file = text.partition("=")
        if not is_pair or not name or not file or name == options.name:
            raise InvalidArgument(f"--adapter {text!r}; expected NAME=FILE, with a name other than {options.name!r}")
        found.load(file, name)
    return found


def _drafter(draft: str) -> Drafter | None:
    if not draft:
        return None
    return NgramDrafter() if draft == "ngrams" else ModelDrafter(Model(draft))
