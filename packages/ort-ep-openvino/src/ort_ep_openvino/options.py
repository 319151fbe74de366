"""The provider's options, named as onnxruntime names those of its OpenVINO provider, and what they mean to OpenVINO.

What cannot be done from Python, or has no meaning here, is refused where it is given, with the reason: an option that
is taken has an effect.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from ort_core.plugin import InvalidArgument

_DEVICE = re.compile(r"(CPU|GPU|NPU)(\.\d+)?|(AUTO|HETERO|MULTI|BATCH)(:[\w.,()]+)?")
_WITH_PRECISION = re.compile(r"((?:CPU|GPU|NPU)(?:\.\d+)?)_(\w*)")  # both in one, as older programs have it
_PRECISIONS = ("FP32", "FP16", "ACCURACY")
_NAMED_SHAPE = re.compile(r"\s*([^\[\],]+?)\s*\[([^\[\]]*)\]\s*(?:,|$)")
_SIZE = re.compile(r"\d+|\d+\.\.\d+|-1|\?")
_REFUSED = {
    "device_luid": "OpenVINO's Python API finds no device by it; use device_type and device_id",
    "context": "an OpenCL context cannot be handed over from Python",
    "enable_causallm": "generation with state is OpenVINO GenAI's, which this package does not use",
    "layout": "models keep ONNX's layout",
}
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenVinoOptions:
    """Options of a session's provider; all have onnxruntime's names, and those without a line below are refused.

    Attributes:
        device_type: where models run: ``CPU``, ``GPU``, ``GPU.1``, ``NPU``, or ``AUTO:``, ``HETERO:``,
            ``MULTI:`` with a list. ``CPU_FP32`` and ``GPU_FP16`` name the precision as well, as older programs do.
        device_id: number of the device among those of its type; or a type, as older programs write it.
        cache_dir: folder for OpenVINO's own cache of compiled models; by default ort-core's artefact cache is used.
        precision: ``FP32`` and ``ACCURACY`` compute in the model's types; ``FP16`` lets OpenVINO compute in less.
        load_config: native properties by device as JSON, ``{"CPU": {"NUM_STREAMS": "2"}}``, or the path of such a file.
        num_of_threads: threads within a run; 0 takes the session's ``intra_op_num_threads``.
        model_priority: ``LOW``, ``MEDIUM``, ``HIGH`` among models on one device.
        num_streams: runs that OpenVINO works on at once; 0 lets it choose.
        enable_opencl_throttling: spare the processor while a GPU works.
        enable_qdq_optimizer: OpenVINO's optimizer of quantized models on the NPU.
        disable_dynamic_shapes: compile a model of fixed sizes for each combination of input sizes, in its first run;
            always so on the NPU, which runs no other.
        reshape_input: bounds for the model's inputs, ``x[1..8,3,224,224]``.
    """

    refused: ClassVar[Mapping[str, str]] = _REFUSED

    device_type: str = "CPU"
    device_id: str = ""
    device_luid: str = ""
    cache_dir: str = ""
    precision: Literal["", "FP32", "FP16", "ACCURACY"] = ""
    load_config: str = ""
    context: str = ""
    num_of_threads: int = 0
    model_priority: Literal["LOW", "MEDIUM", "HIGH", "DEFAULT"] = "DEFAULT"
    num_streams: int = 0
    enable_opencl_throttling: bool = False
    enable_qdq_optimizer: bool = False
    enable_causallm: bool = False
    disable_dynamic_shapes: bool = False
    reshape_input: str = ""
    layout: str = ""

    def __post_init__(self) -> None:
        """Refuse what has no effect here, and what does not parse (``ValueError``)."""
        for name, reason in _REFUSED.items():
            if getattr(self, name):
                raise ValueError(f"option {name!r} is not supported: {reason}")
        self._refuse_second_precision()
        if not _DEVICE.fullmatch(self.device):
            raise ValueError(
                f"option 'device_type' is {self.device_type!r} (with device_id {self.device_id!r}), expected CPU, GPU, "
                "NPU, one with a number as GPU.1, or AUTO:, HETERO: or MULTI: with a list of those"
            )
        for name in ("num_of_threads", "num_streams"):
            if getattr(self, name) < 0:
                raise ValueError(f"option {name!r} is {getattr(self, name)}, expected 0 or more")
        if self.enable_qdq_optimizer and "NPU" not in self.device:
            raise ValueError("option 'enable_qdq_optimizer' is for device_type NPU")
        if self.enable_opencl_throttling and "GPU" not in self.device:
            raise ValueError("option 'enable_opencl_throttling' is for device_type GPU")
        _shapes_in(self.reshape_input)

    @property
    def device(self) -> str:
        """The device as OpenVINO names it."""
        older = _WITH_PRECISION.fullmatch(self._device_type)
        kind = older[1] if older else self._device_type
        if not self.device_id:
            return kind
        return f"{kind}.{self.device_id}" if self.device_id.isdigit() else self.device_id

    @property
    def allowed_precision(self) -> str:
        """The precision by ``precision``, or as ``device_type`` has it behind a ``_``; empty where none is named."""
        older = _WITH_PRECISION.fullmatch(self._device_type)
        return self.precision or (older[2] if older else "")

    @property
    def has_fixed_sizes(self) -> bool:
        """Whether models of open sizes are compiled for each combination of sizes that is run."""
        return self.disable_dynamic_shapes or self.device.startswith("NPU")

    @property
    def _device_type(self) -> str:
        return self.device_type.replace(" ", "")

    def _refuse_second_precision(self) -> None:
        older = _WITH_PRECISION.fullmatch(self._device_type)
        if self.allowed_precision == "FP32" and self.device.startswith("NPU"):
            raise ValueError("option 'precision' is FP32, which no NPU computes in; expected FP16 or ACCURACY")
        if older is None:
            return
        if self.precision:
            raise ValueError(
                f"option 'device_type' is {self.device_type!r} and option 'precision' {self.precision!r}: the "
                f"precision is given twice; use device_type {older[1]}"
            )
        if older[2] not in _PRECISIONS:
            raise ValueError(
                f"option 'device_type' is {self.device_type!r}, expected one of {', '.join(_PRECISIONS)} behind the '_'"
            )
        log.warning(
            "option device_type %s is an older form; use device_type %s with precision %s",
            self.device_type,
            older[1],
            older[2],
        )

    def shapes(self) -> Mapping[str, str]:
        """Return the bounds of ``reshape_input`` by input, as OpenVINO writes them."""
        return _shapes_in(self.reshape_input)

    def configuration(self, num_threads: int) -> dict[str, object]:
        """Return OpenVINO's properties for compiling.

        Args:
            num_threads: the session's number of threads; 0: OpenVINO chooses.

        Raises:
            InvalidArgument: ``load_config`` is no JSON object of objects.
        """
        found: dict[str, object] = {"EXECUTION_MODE_HINT": "ACCURACY"}
        if self.allowed_precision == "FP16":
            found = {"EXECUTION_MODE_HINT": "PERFORMANCE", "INFERENCE_PRECISION_HINT": "f16"}
        elif self.device.startswith("CPU"):
            found["INFERENCE_PRECISION_HINT"] = "f32"  # the default on processors with bfloat16 units is bfloat16
        threads = self.num_of_threads or num_threads
        if threads and self.device.startswith("CPU"):
            found["INFERENCE_NUM_THREADS"] = threads
        if self.num_streams:
            found["NUM_STREAMS"] = str(self.num_streams)
        if self.model_priority != "DEFAULT":
            found["MODEL_PRIORITY"] = self.model_priority
        if self.enable_opencl_throttling:
            found["GPU_QUEUE_THROTTLE"] = "LOW"
        if self.enable_qdq_optimizer:
            found["NPU_QDQ_OPTIMIZATION"] = "YES"
        if self.cache_dir:
            found["CACHE_DIR"] = self.cache_dir
        return {**found, **self._loaded_config()}

    def _loaded_config(self) -> Mapping[str, object]:
        if not self.load_config:
            return {}
        is_text = self.load_config.lstrip().startswith("{")
        try:
            text = self.load_config if is_text else Path(self.load_config).read_text(encoding="utf-8")
            given = json.loads(text)
        except (OSError, ValueError) as error:
            raise InvalidArgument(f"option 'load_config' cannot be read: {error}") from error
        if not isinstance(given, dict) or not all(isinstance(each, dict) for each in given.values()):
            raise InvalidArgument(
                'option \'load_config\' must be as {"CPU": {"NUM_STREAMS": "2"}}: properties by device'
            )
        return {**given.get(self.device.partition(":")[0].partition(".")[0], {}), **given.get(self.device, {})}


def _shapes_in(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _NAMED_SHAPE.match(text, position)
        sizes = [size.strip() for size in match[2].split(",")] if match else []
        if match is None or not all(_SIZE.fullmatch(size) for size in sizes):
            raise ValueError(f"option 'reshape_input' is {text!r}, expected inputs with sizes as x[1..8,3],y[4]")
        found[match[1]] = f"[{','.join(sizes)}]"
        position = match.end()
    return found
