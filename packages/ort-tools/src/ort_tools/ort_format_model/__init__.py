"""Files in ORT format: written from models, read by ort-core, and which operators they need."""

from ort_tools.ort_format_model.operators import create_config_from_models
from ort_tools.ort_format_model.writer import write_ort_format

__all__ = ["create_config_from_models", "write_ort_format"]
