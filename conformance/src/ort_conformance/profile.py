"""EpProfile: what a vendor says of a provider, in one value. Every feature is absent until it is declared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path

from ort_core.tolerances import ToleranceName


class Feature(StrEnum):
    """Something that a provider may offer beyond the contract; its checks run where it is declared."""

    BITWISE_REPEATABLE = "bitwise_repeatable"
    """Equal inputs give equal bits, in every run and every session."""
    DYNAMIC_SHAPES = "dynamic_shapes"
    """Nodes whose sizes are only known at run time are claimed; a new size does not compile anew."""
    STORES_COMPILED = "stores_compiled"
    """``CompiledPartition.serialize`` gives bytes that ``ExecutionProvider.load`` restores."""
    FILLS_BUFFERS = "fills_buffers"
    """A partition writes into the output buffers that it is handed."""
    CONCURRENT_RUNS = "concurrent_runs"
    """A compiled partition runs in any number of threads at once (``runs_at_once`` is ``None``)."""
    CONTROL_FLOW = "control_flow"
    """If, Loop or Scan are claimed whole."""
    DEVICE_MEMORY = "device_memory"
    """The plugin brings a DeviceApi (hook ``ort_devices``) for ``EpProfile.device``."""


@dataclass(frozen=True, slots=True)
class EpProfile:
    """A provider as its author declares it.

    Args:
        name: the public name, such as ``"AcmeExecutionProvider"``.
        options: provider options for every session of the suite.
        features: what the provider offers beyond the contract.
        tolerances: named tolerances by pattern of check (``"models/*": "approximate"``); the first match counts, and
            replaces what the check states. A looser one than "approximate" does not exist on purpose.
        expected_failures: a TOML file with the tables ``notimpl``, ``notyet`` and ``never``: reasons by check.
        device: the device's name for ``OrtValue`` where the provider has memory of its own.
        means: how results come about where it is not the hardware of the provider's name: ``"emulated by …"``. Reports
            and the support matrix say it beside every number.
        memory_growth_nbytes: how much a thousand sessions and runs may leave behind, in bytes of memory in use.

    Example:
        >>> EpProfile("AcmeExecutionProvider", features=frozenset({Feature.FILLS_BUFFERS})).declares(
        ...     Feature.FILLS_BUFFERS
        ... )
        True
    """

    name: str
    options: Mapping[str, object] = field(default_factory=dict)
    features: frozenset[Feature] = frozenset()
    tolerances: Mapping[str, ToleranceName] = field(default_factory=dict)
    expected_failures: Path | None = None
    device: str = "cpu"
    means: str = ""
    memory_growth_nbytes: int = 32 * 2**20

    def declares(self, feature: Feature) -> bool:
        """Return whether the provider offers a feature."""
        return feature in self.features

    def tolerance_for(self, check: str) -> ToleranceName | None:
        """Return the named tolerance that replaces the one of a check, or ``None``."""
        return next((name for pattern, name in self.tolerances.items() if fnmatchcase(check, pattern)), None)
