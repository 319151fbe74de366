"""The collector of cyclic garbage, paused while a provider builds what consists of many small objects."""

from ort_core.collecting import paused_collection

__all__ = ["paused_collection"]
