"""Small models that the tests of the API share, as ONNX text, and sessions over them."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import parser

from ort_core.session import InferenceSession

sys.path.insert(0, str(Path(__file__).parent))  # tests import storing_providers from here

MODELS = {
    "two_inputs": """
        <ir_version: 8, opset_import: ["": 13]>
        two (float[N, 4] x, float[N, 4] z) => (float[N, 4] total, float[N, 4] product) {
            total = Add(x, z)
            product = Mul(x, z)
        }""",
    "scale": """
        <ir_version: 8, opset_import: ["": 13], producer_name: "test", model_version: 7, domain: "here",
         doc_string: "scales", metadata_props: ["color": "blue"]>
        scale (float[N] x, float[1] factor = {2}) => (float[N] y)
        <float[1] fixed = {3}>
        {
            scaled = Mul(x, factor)
            y = Mul(scaled, fixed)
        }""",
    "text": """
        <ir_version: 8, opset_import: ["": 13]>
        text (string[N] s) => (string[N] y) { y = Identity(s) }""",
    "long_loop": """
        <ir_version: 8, opset_import: ["": 13]>
        long (int64 count, bool go, float[1] x) => (float[1] y) {
            y = Loop(count, go, x) <body = turn (int64 i, bool c, float[1] a) => (bool d, float[1] b) {
                d = Identity(c)
                b = Sin(a)
            }>
        }""",
    "int4": """
        <ir_version: 10, opset_import: ["": 21]>
        narrow (int4[N] x) => (int4[N] y) { y = Identity(x) }""",
    "bfloat16": """
        <ir_version: 10, opset_import: ["": 21]>
        narrow (bfloat16[N] x) => (bfloat16[N] y) { y = Identity(x) }""",
    "sequence": """
        <ir_version: 8, opset_import: ["": 13]>
        first (seq(float[N]) items) => (float[N] y) {
            zero = Constant <value_int: int = 0> ()
            y = SequenceAt(items, zero)
        }""",
    "optional": """
        <ir_version: 8, opset_import: ["": 18]>
        present (optional(float[N]) maybe) => (bool y) { y = OptionalHasElement(maybe) }""",
    "random": """
        <ir_version: 8, opset_import: ["": 13]>
        draw () => (float[8] y) { y = RandomNormal <shape = [8]> () }""",
    "expand": """
        <ir_version: 8, opset_import: ["": 13]>
        big (float[1] x, int64[1] shape) => (float[N] y) { y = Expand(x, shape) }""",
}


@pytest.fixture(scope="session")
def model() -> Callable[[str], bytes]:
    """Return a function from a model's name to its bytes."""
    return lambda name: parser.parse_model(MODELS[name]).SerializeToString()


@pytest.fixture
def session_of(model) -> Callable[..., InferenceSession]:
    """Return a function from a model's name (and a session's arguments) to a session."""
    return lambda name, *args, **kwargs: InferenceSession(model(name), *args, **kwargs)
