"""The only module that imports the vendor's SDK. NumPy stands in its place until yours does."""

from __future__ import annotations

from ort_core.plugin import Available, Unavailable


def find_device() -> Available | Unavailable:
    """Return the device that the SDK sees, or why there is none and what would help. Never raises."""
    try:
        import numpy as sdk  # here, and not above: loading an SDK is for those who run on it
    except ImportError as error:
        return Unavailable(f"the SDK cannot be loaded: {error}", "pip install numpy")
    return Available(f"NumPy {sdk.__version__} in place of a device")
