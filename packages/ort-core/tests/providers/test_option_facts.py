"""Facts of options: each field's type, default and sentence, out of the class that defines them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import pytest

from ort_core.environment import default_environment
from ort_core.plugin import OptionFacts, describe_options, frozen
from ort_core.providers.options import NoOptions


@dataclass(frozen=True, slots=True)
class Options:
    """Options of nobody.

    Attributes:
        level: how hard to try; ``0`` not at
            all.
        mode: one of two: ``fast: and wrong`` or not.
        folder: where, or nowhere.

    Raises:
        names: this is another section.
    """

    refused: ClassVar[dict[str, str]] = {"debug": "nothing is written"}

    level: int = 3
    mode: Literal["fast", "exact"] = "exact"
    folder: str | None = None
    debug: bool = False
    names: tuple[str, ...] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class MoreOptions(Options):
    """Options of nobody, and one more.

    Attributes:
        level: another meaning.
        limit: seconds.
    """

    limit: float = 0.5


def test_options_are_described_in_the_order_of_their_fields():
    assert describe_options(Options) == (
        OptionFacts("level", "int", "3", "How hard to try; `0` not at all."),
        OptionFacts("mode", "'fast' | 'exact'", "'exact'", "One of two: `fast: and wrong` or not."),
        OptionFacts("folder", "str | None", "None", "Where, or nowhere."),
        OptionFacts("debug", "bool", "False", "Refused: nothing is written."),
        OptionFacts("names", "tuple[str, ...]", "()", ""),
    )


def test_a_class_that_inherits_options_says_what_it_changes():
    found = {option.name: option.sentence for option in describe_options(MoreOptions)}
    assert found["level"] == "Another meaning."
    assert found["folder"] == "Where, or nowhere."
    assert found["limit"] == "Seconds."


def test_a_frozen_class_is_described_as_a_dataclass_is():
    @frozen
    class Frozen:
        """Options.

        Attributes:
            level: how hard to try.
        """

        level: int

    assert describe_options(Frozen) == (OptionFacts("level", "int", "required", "How hard to try."),)


def test_a_class_without_docstring_or_fields_is_described():
    undocumented = dataclass(type("Undocumented", (), {"__annotations__": {"level": int}, "level": 1}))
    undocumented.__doc__ = None  # as with -OO
    assert describe_options(undocumented) == (OptionFacts("level", "int", "1", ""),)
    assert describe_options(NoOptions) == ()


@pytest.mark.parametrize("cls", default_environment().provider_classes().values(), ids=lambda cls: cls.name)
def test_every_option_of_the_core_s_own_providers_has_a_sentence(cls):
    assert [option.name for option in describe_options(cls.options_type) if not option.sentence] == []
