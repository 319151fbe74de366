"""Every public name of onnxruntime-genai is here, with its methods, parameters and numbers."""

from __future__ import annotations

import importlib.util
import inspect
import json

import pytest
from genai_api_walk import FILE, walked

import ort_genai

WRITTEN = json.loads(FILE.read_text(encoding="utf-8"))


def test_the_written_list_is_what_the_wheel_has():
    if importlib.util.find_spec("onnxruntime_genai") is None:
        pytest.skip("onnxruntime-genai is not installed")
    assert walked() == WRITTEN


@pytest.mark.parametrize("name", WRITTEN)
def test_the_name_is_here_with_all_that_it_has(name):
    ours, theirs = getattr(ort_genai, name), WRITTEN[name]
    if isinstance(theirs, list):
        assert takes(ours, theirs), inspect.signature(ours)
    elif "members" in theirs:
        assert {each: int(value) for each, value in ours.__members__.items()} == theirs["members"]
    else:
        wrong = [each for each, stated in theirs.items() if not has(ours, each, stated)]
        assert wrong == [], f"{name} lacks {wrong}, or takes other arguments"


def has(kind, name, stated):
    """Return whether a class has a method with such parameters, or such a property."""
    if name == "__init__":
        return takes(kind, stated)
    if stated == "property":  # a dataclass has fields
        return isinstance(getattr(kind, name, None), property) or name in getattr(kind, "__dataclass_fields__", {})
    found = getattr(kind, name, None)
    return found is not None and (not stated or takes(found, stated, is_method=not inspect.ismethod(found)))


def takes(function, forms, is_method=False):
    """Return whether a function takes each form: as many arguments, and those with names by their names."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # a method of a built-in type
        return True
    for form in forms:
        named = {name: None for name in form if not name.startswith(("arg", "*"))}
        placed = [None] * (is_method + sum(name.startswith("arg") for name in form))
        try:
            signature.bind(*placed, **named)
        except TypeError:
            return False
    return True


def test_what_a_form_asks_for_is_looked_at():
    assert not takes(ort_genai.set_current_gpu_device_id, [["arg0", "arg1"]])
    assert not takes(ort_genai.Engine.create_event_buffer, [["size"]], is_method=True)
    assert not has(ort_genai.Tokenizer, "no_such_token_id", "property")
