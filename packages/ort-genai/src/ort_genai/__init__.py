"""Language models: onnxruntime-genai's names over ort-core, an engine for many requests, OpenAI's routes."""

from typing import TYPE_CHECKING

from ort_core.lazy_names import lazy_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ort_genai.configuration import Config
    from ort_genai.embeddings import Embedder, Pooling
    from ort_genai.engine.drafts import ModelDrafter, NgramDrafter
    from ort_genai.engine.engine import Engine, EngineOptions
    from ort_genai.engine.requests import FinishReason, GenerationOptions, Piece, Request
    from ort_genai.generator import Generator, GeneratorParams
    from ort_genai.model import Adapters, Model
    from ort_genai.tensors import NamedTensors, Tensor
    from ort_genai.text import Tokenizer, TokenizerStream

__all__ = [
    "Adapters", "Config", "Embedder", "Engine", "EngineOptions", "FinishReason", "GenerationOptions", "Generator",
    "GeneratorParams", "Model", "ModelDrafter", "NamedTensors", "NgramDrafter", "Piece", "Pooling", "Request", "Tensor",
    "Tokenizer", "TokenizerStream", "__version__",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(  # a program that builds a model does not import what runs one
    __name__,
    {
        "ort_genai.configuration": ("Config",),
        "ort_genai.embeddings": ("Embedder", "Pooling"),
        "ort_genai.engine.drafts": ("ModelDrafter", "NgramDrafter"),
        "ort_genai.engine.engine": ("Engine", "EngineOptions"),
        "ort_genai.engine.requests": ("FinishReason", "GenerationOptions", "Piece", "Request"),
        "ort_genai.generator": ("Generator", "GeneratorParams"),
        "ort_genai.model": ("Adapters", "Model"),
        "ort_genai.tensors": ("NamedTensors", "Tensor"),
        "ort_genai.text": ("Tokenizer", "TokenizerStream"),
    },
)  # fmt: skip
