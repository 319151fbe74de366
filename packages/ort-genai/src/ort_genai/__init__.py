"""Language models: onnxruntime-genai's names over ort-core, an engine for many requests, OpenAI's routes."""

from typing import TYPE_CHECKING

from ort_core.lazy_names import lazy_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ort_genai.configuration import Config
    from ort_genai.cross_encoder import CrossEncoder
    from ort_genai.embeddings import Embedder, Pooling
    from ort_genai.engine.drafts import ModelDrafter, NgramDrafter
    from ort_genai.engine.engine import AsyncEngine
    from ort_genai.engine.options import EngineOptions
    from ort_genai.engine.requests import AsyncRequest, EndReason, GenerationOptions, Piece
    from ort_genai.generator import Generator, GeneratorParams
    from ort_genai.machine import (
        disable_telemetry_events,
        enable_telemetry_events,
        get_current_gpu_device_id,
        is_cuda_available,
        is_dml_available,
        is_openvino_available,
        is_qnn_available,
        is_webgpu_available,
        register_execution_provider_library,
        set_current_gpu_device_id,
        set_log_callback,
        set_log_options,
        unregister_execution_provider_library,
    )
    from ort_genai.media.audios import Audios
    from ort_genai.media.images import Images
    from ort_genai.media.processor import MultiModalProcessor
    from ort_genai.media.streaming import StreamingProcessor
    from ort_genai.media.transcription import Transcriber
    from ort_genai.model import Adapters, Model
    from ort_genai.mtp import MtpGenerator
    from ort_genai.tensors import NamedTensors, Tensor
    from ort_genai.text import Tokenizer, TokenizerStream
    from ort_genai.turns.engine import Engine
    from ort_genai.turns.events import (
        EngineCapabilities,
        EngineErrorCode,
        EngineEvent,
        EngineEventBuffer,
        EngineEventFlags,
        FinishReason,
        TurnUsage,
    )
    from ort_genai.turns.options import RequestOptions, TurnOptions
    from ort_genai.turns.request import Request

__all__ = [
    "Adapters", "AsyncEngine", "AsyncRequest", "Audios", "Config", "CrossEncoder", "Embedder", "EndReason", "Engine",
    "EngineCapabilities", "EngineErrorCode", "EngineEvent", "EngineEventBuffer", "EngineEventFlags", "EngineOptions",
    "FinishReason", "GenerationOptions", "Generator", "GeneratorParams", "Images", "Model", "ModelDrafter",
    "MtpGenerator", "MultiModalProcessor", "NamedTensors", "NgramDrafter", "Piece", "Pooling", "Request",
    "RequestOptions", "StreamingProcessor", "Tensor", "Tokenizer", "TokenizerStream", "Transcriber", "TurnOptions",
    "TurnUsage", "__version__", "disable_telemetry_events", "enable_telemetry_events", "get_current_gpu_device_id",
    "is_cuda_available", "is_dml_available", "is_openvino_available", "is_qnn_available", "is_webgpu_available",
    "register_execution_provider_library", "set_current_gpu_device_id", "set_log_callback", "set_log_options",
    "unregister_execution_provider_library",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(  # a program that builds a model does not import what runs one
    __name__,
    {
        "ort_genai.configuration": ("Config",),
        "ort_genai.cross_encoder": ("CrossEncoder",),
        "ort_genai.embeddings": ("Embedder", "Pooling"),
        "ort_genai.engine.drafts": ("ModelDrafter", "NgramDrafter"),
        "ort_genai.engine.engine": ("AsyncEngine",),
        "ort_genai.engine.options": ("EngineOptions",),
        "ort_genai.engine.requests": ("AsyncRequest", "EndReason", "GenerationOptions", "Piece"),
        "ort_genai.generator": ("Generator", "GeneratorParams"),
        "ort_genai.machine": (
            "disable_telemetry_events", "enable_telemetry_events", "get_current_gpu_device_id", "is_cuda_available",
            "is_dml_available", "is_openvino_available", "is_qnn_available", "is_webgpu_available",
            "register_execution_provider_library", "set_current_gpu_device_id", "set_log_callback", "set_log_options",
            "unregister_execution_provider_library",
        ),
        "ort_genai.media.audios": ("Audios",),
        "ort_genai.media.images": ("Images",),
        "ort_genai.media.processor": ("MultiModalProcessor",),
        "ort_genai.media.streaming": ("StreamingProcessor",),
        "ort_genai.media.transcription": ("Transcriber",),
        "ort_genai.model": ("Adapters", "Model"),
        "ort_genai.mtp": ("MtpGenerator",),
        "ort_genai.tensors": ("NamedTensors", "Tensor"),
        "ort_genai.text": ("Tokenizer", "TokenizerStream"),
        "ort_genai.turns.engine": ("Engine",),
        "ort_genai.turns.events": (
            "EngineCapabilities", "EngineErrorCode", "EngineEvent", "EngineEventBuffer", "EngineEventFlags",
            "FinishReason", "TurnUsage",
        ),
        "ort_genai.turns.options": ("RequestOptions", "TurnOptions"),
        "ort_genai.turns.request": ("Request",),
    },
)  # fmt: skip
