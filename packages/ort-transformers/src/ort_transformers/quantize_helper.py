"""QuantizeHelper: weights of 8 bits for models of torch, which is imported when it is needed, and of ONNX."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

Module = Any  # torch's, which need not be installed
_MEGABYTE = 1024**2


def conv1d_to_linear(model: Module) -> None:
    """Replace each Conv1D of transformers by the Linear that it is, in place: torch quantizes those alone."""
    torch = importlib.import_module("torch")
    conv1d = importlib.import_module("transformers.pytorch_utils").Conv1D
    for name, module in list(model.named_children()):
        if not isinstance(module, conv1d):
            conv1d_to_linear(module)
            continue
        linear = torch.nn.Linear(*module.weight.shape)
        linear.weight.data = module.weight.data.T.contiguous()
        linear.bias.data = module.bias.data
        setattr(model, name, linear)


class QuantizeHelper:
    """Dynamic quantization."""

    @staticmethod
    def quantize_torch_model(model: Module, dtype: Any = None) -> Module:
        """Return a model of torch with weights of 8 bits; ``model`` itself gets Linear in place of Conv1D."""
        torch = importlib.import_module("torch")
        conv1d_to_linear(model)
        return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=dtype or torch.qint8)

    @staticmethod
    def quantize_onnx_model(
        onnx_model_path: str, quantized_model_path: str, use_external_data_format: bool = False
    ) -> None:
        """Write a model with weights of 8 bits.

        Raises:
            ModuleNotFoundError: ort-quantization is not installed.
            OrtError: the model cannot be loaded.
        """
        quantization = importlib.import_module("ort_core.quantization")
        Path(quantized_model_path).parent.mkdir(parents=True, exist_ok=True)
        quantization.quantize_dynamic(
            onnx_model_path, quantized_model_path, use_external_data_format=use_external_data_format
        )
        sizes = (Path(each).stat().st_size / _MEGABYTE for each in (onnx_model_path, quantized_model_path))
        log.info("megabytes of the files: %.1f before, %.1f after", *sizes)
