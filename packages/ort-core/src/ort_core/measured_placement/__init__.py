"""Measured placement: providers timed on sample inputs, the placement that was fastest taken, and remembered."""

from ort_core.measured_placement.placement import MeasuredPlacement, measure_placement
from ort_core.measured_placement.request import MeasureRequest

__all__ = ["MeasureRequest", "MeasuredPlacement", "measure_placement"]
