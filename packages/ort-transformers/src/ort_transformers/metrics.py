"""BenchmarkRecord: one measurement, with what was measured and where, written as CSV or JSON."""

from __future__ import annotations

import csv
import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ort_core.whole_files import replace_text, written_whole


class BaseObject:
    """Named values; those that say nothing are left out of ``to_dict``. ``customized`` takes further ones."""

    def __init__(self) -> None:
        self.customized: dict[str, object] = {}

    def to_dict(self) -> dict[str, object]:
        """Return the values, those inside of values, too."""
        known = {name: value for name, value in vars(self).items() if name != "customized"} | self.customized
        plain = {name: value.to_dict() if isinstance(value, BaseObject) else value for name, value in known.items()}
        return {name: value for name, value in plain.items() if value}


class ModelInfo(BaseObject):
    """A model: its names, its kind, and what shapes it was given."""

    def __init__(
        self,
        full_name: str | None = None,
        is_huggingface: bool | None = False,
        is_text_generation: bool | None = False,
        short_name: str | None = None,
    ) -> None:
        super().__init__()
        self.full_name = full_name
        self.is_huggingface = is_huggingface
        self.is_text_generation = is_text_generation
        self.short_name = short_name
        self.input_shape: list[object] = []


class BackendOptions(BaseObject):
    """How the model was run."""

    def __init__(
        self,
        enable_profiling: bool | None = False,
        execution_provider: str | None = None,
        use_io_binding: bool | None = False,
    ) -> None:
        super().__init__()
        self.enable_profiling = enable_profiling
        self.execution_provider = execution_provider
        self.use_io_binding = use_io_binding


class Config(BaseObject):
    """What was measured, and how often."""

    def __init__(
        self,
        backend: str | None = "onnxruntime",
        batch_size: int | None = 1,
        seq_length: int | None = 0,
        precision: str | None = "fp32",
        warmup_runs: int | None = 1,
        measured_runs: int | None = 10,
    ) -> None:
        super().__init__()
        self.backend = backend
        self.batch_size = batch_size
        self.seq_length = seq_length
        self.precision = precision
        self.warmup_runs = warmup_runs
        self.measured_runs = measured_runs
        self.model_info = ModelInfo()
        self.backend_options = BackendOptions()


class Metadata(BaseObject):
    """Where it was measured."""

    def __init__(
        self,
        device: str | None = None,
        package_name: str | None = None,
        package_version: str | None = None,
        platform: str | None = None,
        python_version: str | None = None,
    ) -> None:
        super().__init__()
        self.device = device
        self.package_name = package_name
        self.package_version = package_version
        self.platform = platform
        self.python_version = python_version


class Metrics(BaseObject):
    """What came out: milliseconds of a run, runs a second, gigabytes."""

    def __init__(
        self,
        latency_ms_mean: float | None = 0.0,
        throughput_qps: float | None = 0.0,
        max_memory_usage_GB: float | None = 0.0,  # noqa: N803 - the name that programs use
    ) -> None:
        super().__init__()
        self.latency_ms_mean = latency_ms_mean
        self.throughput_qps = throughput_qps
        self.max_memory_usage_GB = max_memory_usage_GB


class BenchmarkRecord:
    """One measurement."""

    def __init__(
        self,
        model_name: str,
        precision: str,
        backend: str,
        device: str,
        package_name: str,
        package_version: str,
        batch_size: int | None = 1,
        warmup_runs: int | None = 1,
        measured_runs: int | None = 10,
        trigger_date: str | None = None,
    ) -> None:
        self.config = Config(
            backend=backend, batch_size=batch_size, precision=precision, warmup_runs=warmup_runs,
            measured_runs=measured_runs,
        )  # fmt: skip
        self.config.model_info.full_name = model_name
        self.metrics = Metrics()
        self.metadata = Metadata(device=device, package_name=package_name, package_version=package_version)
        now = datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        self.trigger_date = trigger_date or now

    def to_dict(self) -> dict[str, object]:
        """Return all that is known."""
        parts = {"config": self.config, "metadata": self.metadata, "metrics": self.metrics}
        return {name: part.to_dict() for name, part in parts.items()} | {"trigger_date": self.trigger_date}

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(self.to_dict(), default=str)

    @classmethod
    def save_as_csv(cls, file_name: str, records: Sequence[BenchmarkRecord]) -> None:
        """Write one line for each record, with columns such as ``config.model_info.full_name``; nothing for none."""
        rows = [dict(_flat(record.to_dict())) for record in records or ()]
        if not rows:
            return
        columns = list(dict.fromkeys(name for row in rows for name in row))
        with written_whole(Path(file_name)) as place, place.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)

    @classmethod
    def save_as_json(cls, file_name: str, records: Sequence[BenchmarkRecord]) -> None:
        """Write a list of all records; nothing for none."""
        if records:
            text = json.dumps([record.to_dict() for record in records], indent=4, default=str)
            replace_text(Path(file_name), text)


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
