"""MachineInfo: processor, memory, GPUs and versions of a machine, as benchmarks write them beside their figures.

python -m ort_transformers.machine_info
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import logging
import os
import platform
from collections.abc import Sequence
from typing import Any

import ort_core
from ort_core.cli.interrupts import run_program
from ort_transformers.benchmark_helper import get_gpu_info
from ort_transformers.import_utils import is_installed

log = logging.getLogger("ort_transformers.machine_info")  # not __name__, which is __main__ of a command line

_PACKAGES = (
    "flatbuffers", "numpy", "onnx", "onnxconverter-common", "onnxruntime", "onnxruntime-gpu", "ort-core", "protobuf",
    "sympy", "tensorflow", "torch", "transformers",
)  # fmt: skip


class MachineInfo:
    """What is known of this machine: ``machine_info``.

    Args:
        silent: log nothing.
        logger: for what is not known.
    """

    def __init__(self, silent: bool = False, logger: logging.Logger | None = None) -> None:
        self.silent = silent
        self.logger = logger or log
        self.machine_info: dict[str, Any] | None = self.get_machine_info()

    def get_machine_info(self) -> dict[str, Any]:
        """Return all of it."""
        return {
            "gpu": self.get_gpu_info_by_nvml(),
            "cpu": self.get_cpu_info(),
            "memory": self.get_memory_info(),
            "os": platform.platform(),
            "python": platform.python_version(),
            "packages": self.get_related_packages(),
            "onnxruntime": self.get_onnxruntime_info(),
            "pytorch": self.get_pytorch_info(),
            "tensorflow": self.get_tensorflow_info(),
        }

    def get_memory_info(self) -> dict[str, int]:
        """Return the bytes of memory, and those that are free."""
        memory = importlib.import_module("psutil").virtual_memory()
        return {"total": memory.total, "available": memory.available}

    def get_cpu_info(self) -> dict[str, Any]:
        """Return name and cores of the processor."""
        psutil = importlib.import_module("psutil")
        return {
            "brand": platform.processor() or platform.machine(),
            "cores": psutil.cpu_count(logical=False),
            "logical_cores": psutil.cpu_count(logical=True),
            "processor": platform.machine(),
        }

    def get_gpu_info_by_nvml(self) -> dict[str, Any] | None:
        """Return the GPUs that torch sees; ``None`` without one."""
        found = get_gpu_info()
        if found is None:
            if not self.silent:
                self.logger.info("no GPU is known: torch is not installed, or sees none")
            return None
        devices = [{"name": each["name"], "memory_total": each["total"], "memory_available": each["free"]}
                   for each in found]  # fmt: skip
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return {"devices": devices} | ({} if visible is None else {"cuda_visible": visible})

    def get_related_packages(self) -> dict[str, str]:
        """Return the versions of those packages that are installed."""
        return {name: importlib.metadata.version(name) for name in _PACKAGES if _has_distribution(name)}

    def get_onnxruntime_info(self) -> dict[str, Any]:
        """Return the version of the engine, and whether it may use a GPU of CUDA."""
        return {
            "version": ort_core.__version__,
            "support_gpu": "CUDAExecutionProvider" in ort_core.get_available_providers(),
        }

    def get_pytorch_info(self) -> dict[str, Any] | None:
        """Return torch's version, and whether it has a GPU; ``None`` without torch."""
        if not is_installed("torch"):
            return None
        torch = importlib.import_module("torch")
        return {"version": torch.__version__, "support_gpu": torch.cuda.is_available(), "cuda": torch.version.cuda}

    def get_tensorflow_info(self) -> dict[str, Any] | None:
        """Return TensorFlow's version; ``None`` without it. It is not imported."""
        return {"version": importlib.metadata.version("tensorflow")} if _has_distribution("tensorflow") else None


def _has_distribution(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def get_machine_info(silent: bool = True) -> str:
    """Return what is known of this machine, as JSON."""
    return json.dumps(MachineInfo(silent).machine_info, indent=2)


def get_device_info(silent: bool = True) -> str:
    """Return GPU, processor and memory of this machine, as JSON."""
    known = MachineInfo(silent).machine_info or {}
    return json.dumps({name: known[name] for name in ("gpu", "cpu", "memory")}, indent=2)


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what a command line asks for; by default this process's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--silent", action="store_true", help="log nothing")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Show what is known of this machine."""
    asked = parse_arguments(argv)
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    log.info("%s", get_machine_info(asked.silent))


if __name__ == "__main__":
    run_program(main)
