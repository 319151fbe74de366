"""The users' door: every name of onnxruntime, lazily, and cheap to open."""

import onnxruntime
import pytest

import ort_core

# Names of onnxruntime's package that are no API: its own files, imported standard modules, private helpers.
NO_API = {
    "capi",
    "contextlib",
    "cuda_version",
    "import_capi_exception",
    "onnxruntime_validation",
    "package_name",
    "version",
}


def test_every_public_name_of_onnxruntime_is_there():
    theirs = {name for name in dir(onnxruntime) if not name.startswith("_")} - NO_API
    theirs -= {"backend", "datasets", "quantization", "tools", "transformers"}  # other packages; backend: the drop-in
    assert not {name for name in theirs if not hasattr(ort_core, name)}
    assert not theirs - set(dir(ort_core))


@pytest.mark.parametrize("name", sorted(ort_core.__all__))
def test_every_listed_name_can_be_had(name):
    assert getattr(ort_core, name) is not None


def test_an_unknown_name_is_refused_with_the_near_one():
    with pytest.raises(AttributeError, match=r"no attribute 'InferenceSesion'.*Did you mean 'InferenceSession'"):
        _ = ort_core.InferenceSesion
