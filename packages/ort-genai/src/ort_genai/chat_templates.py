"""Chat templates, in jinja2's sandbox, with what those of Hugging Face's models call."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from ort_genai.bounded_templates import BoundedEnvironment
from ort_genai.errors import InvalidGeneration
from ort_genai.template_budget import SIZE, Budget

_WIDEST = 64  # characters that JSON is indented by
_FAULTS = (
    TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError, NameError,
    AssertionError,  # jinja2's word for arguments of filters that do not fit
    SyntaxError,  # of Python, for a break outside of loops
)  # fmt: skip


class GenerationTag(Extension):
    """``{% generation %}``, which marks what a model is trained on, and changes nothing of what is written."""

    tags = frozenset({"generation"})  # type: ignore[assignment]  # jinja2 only looks into it

    def parse(self, parser: Parser) -> nodes.Node:
        """Return what stands between the tags, with names of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def written(template: str, values: Mapping[str, object]) -> str:
    """Return what a template writes of values.

    Raises:
        InvalidGeneration: it fails, refuses, writes without end, or does what the sandbox forbids.
    """
    try:
        pieces, size = [], 0
        for piece in _environment().from_string(template).generate(**values):
            size += len(piece)
            if size > SIZE:
                raise InvalidGeneration(f"the chat template writes more than {SIZE} characters")
            pieces.append(piece)
    except jinja2.TemplateError as error:
        raise InvalidGeneration(f"the chat template refuses: {error}") from error
    except InvalidGeneration:
        raise
    except _FAULTS as error:
        raise InvalidGeneration(f"the chat template fails: {type(error).__name__}: {error}") from error
    return "".join(pieces)


def _environment() -> BoundedEnvironment:
    """Return a sandbox with what templates of Hugging Face's models call."""

    def refuse(message: str) -> str:
        raise jinja2.TemplateError(message)

    def as_json(value: object, indent: int | None = None, ensure_ascii: bool = False, **_: object) -> str:
        if isinstance(indent, int) and indent > _WIDEST:
            refuse(f"JSON is indented by {indent} characters, more than {_WIDEST}")
        return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)

    options = {"trim_blocks": True, "lstrip_blocks": True, "extensions": ["jinja2.ext.loopcontrols", GenerationTag]}
    made = BoundedEnvironment(Budget(), **options)
    made.filters["tojson"] = made.counted("tojson", as_json)
    made.globals.update(raise_exception=refuse, strftime_now=lambda form: datetime.datetime.now().strftime(form))
    return made
