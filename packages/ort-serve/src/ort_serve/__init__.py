"""ONNX models behind HTTP and gRPC: the Open Inference Protocol, over ort-core's sessions."""

from typing import TYPE_CHECKING

from ort_core.lazy_names import lazy_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ort_serve.repository.model_repository import ModelRepository
    from ort_serve.repository.model_settings import ModelSettings
    from ort_serve.server import Server
    from ort_serve.server_settings import ServerSettings

__all__ = ["ModelRepository", "ModelSettings", "Server", "ServerSettings", "__version__"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ort_serve.repository.model_repository": ("ModelRepository",),
        "ort_serve.repository.model_settings": ("ModelSettings",),
        "ort_serve.server": ("Server",),
        "ort_serve.server_settings": ("ServerSettings",),
    },
)  # fmt: skip
