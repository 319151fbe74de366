"""The conformance suite of execution providers: what every provider promises, checked on any of them."""

from ort_conformance.profile import EpProfile, Feature
from ort_conformance.test_function import conformance_tests

__version__ = "0.1.0"

__all__ = ["EpProfile", "Feature", "__version__", "conformance_tests"]
