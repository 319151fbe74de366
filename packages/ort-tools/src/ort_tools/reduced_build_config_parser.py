"""parse_config(): which operators a reduced build of onnxruntime is to have, as `create_config_from_models` lists them.

# a comment
ai.onnx;12,13;Add,Cast{"inputs": {"0": ["float"]}},Concat
!globally_allowed_types;float,int64_t
!no_ops_specified_means_all_ops_are_required
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

_ALL_WITHOUT_ENTRIES = "!no_ops_specified_means_all_ops_are_required"
_ALLOWED_TYPES = "!globally_allowed_types;"
_NAME = re.compile(r"\s*(\w+)\s*")

RequiredOperators = dict[str, dict[int, set[str]]]


def parse_config(config_file: str, enable_type_reduction: bool = False) -> tuple[RequiredOperators | None, None]:
    """Return the operators by domain and opset.

    Args:
        config_file: the list.
        enable_type_reduction: refused: only onnxruntime's own build reads which types each operator is to have.

    Returns:
        The operators, ``None`` where all are required; and ``None`` for the filter of types.

    Raises:
        ValueError: the file is not there, a line is none of those above, or types are asked for.
    """
    if enable_type_reduction:
        raise ValueError(
            "enable_type_reduction makes a filter for the sources of onnxruntime, which its own build reads: parse the "
            "file there, or leave the types out"
        )
    path = Path(config_file)
    if not path.is_file():
        raise ValueError(f"there is no file {config_file}")
    required: RequiredOperators = {}
    without_entries = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if text == _ALL_WITHOUT_ENTRIES:
            without_entries = True
        elif text and not text.startswith(("#", _ALLOWED_TYPES)):
            _add_entry(required, text, f"{config_file}, line {number}")
    return (None if without_entries and not required else required), None


def _add_entry(required: RequiredOperators, text: str, place: str) -> None:
    parts = [each.strip() for each in text.split(";", 2)]
    if len(parts) != 3 or not all(each.strip().isdigit() for each in parts[1].split(",")):
        raise ValueError(f"{place}: expected DOMAIN;OPSET,...;OPERATOR,..., found {text!r}")
    names = set(_operators(parts[2], place))
    for opset in parts[1].split(","):
        required.setdefault(parts[0], {}).setdefault(int(opset), set()).update(names)


def _operators(text: str, place: str) -> Iterator[str]:
    """Yield the names of ``A,B{types in JSON},C``."""
    at = 0
    while at < len(text):
        found = _NAME.match(text, at)
        if found is None:
            raise ValueError(f"{place}: expected the name of an operator at {text[at : at + 20]!r}")
        yield found[1]
        at = found.end()
        if text[at : at + 1] == "{":
            try:
                at = json.JSONDecoder().raw_decode(text, at)[1]
            except json.JSONDecodeError as error:
                raise ValueError(f"{place}: the types of {found[1]} are no JSON: {error}") from error
        rest = text[at:].lstrip()
        if rest and not rest.startswith(","):
            raise ValueError(f"{place}: expected a comma behind {found[1]}, found {rest[:20]!r}")
        at = len(text) - len(rest) + 1
