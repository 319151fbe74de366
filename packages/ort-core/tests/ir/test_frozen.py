"""``frozen`` makes what the plain decorator makes: each case runs on both and asks the same of them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest

from ort_core.frozen import frozen


@dataclass(frozen=True, slots=True)
class PlainSize:
    """A size."""

    unit: ClassVar[str] = "m"
    width: int
    height: int = 1
    names: list[str] = field(default_factory=list)

    def area(self) -> int:
        """Return the area."""
        return self.width * self.height


@frozen
class FrozenSize:
    """A size."""

    unit: ClassVar[str] = "m"
    width: int
    height: int = 1
    names: list[str] = field(default_factory=list)

    def area(self) -> int:
        """Return the area."""
        return self.width * self.height


@dataclass(frozen=True, slots=True)
class PlainChecked:
    value: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", self.value + 1)

    def __hash__(self) -> int:
        return 7


@frozen
class FrozenChecked:
    value: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", self.value + 1)

    def __hash__(self) -> int:
        return 7


@frozen
class Volume(FrozenSize):
    """A size with a depth."""

    depth: int = 2


PAIRS = [PlainSize, FrozenSize]


@pytest.mark.parametrize("of", PAIRS)
def test_fields_defaults_and_values_are_as_declared(of: Any) -> None:
    size = of(3)
    assert (size.width, size.height, size.names, size.area(), of.unit) == (3, 1, [], 3, "m")
    assert of(3).names is not size.names
    assert repr(size) == f"{of.__name__}(width=3, height=1, names=[])"
    assert of.__match_args__ == ("width", "height", "names")
    assert (of.__doc__, of.__module__, of.__qualname__) == ("A size.", __name__, of.__name__)
    for wrong in ((), (1, 2, [], 4)):
        with pytest.raises(TypeError):
            of(*wrong)
    with pytest.raises(TypeError, match="depth"):
        of(1, depth=2)


@pytest.mark.parametrize("of", PAIRS)
def test_equal_values_are_equal_and_other_classes_are_not(of: Any) -> None:
    assert of(3) == of(3, 1)
    assert of(3) != of(4)
    assert of(3).__eq__((3, 1, [])) is NotImplemented
    assert hash(of(3, 1, ())) == hash(of(3, names=()))
    assert len({of(3, 1, ()), of(3, 1, ()), of(3, 2, ())}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(of(3))


@pytest.mark.parametrize("of", PAIRS)
def test_nothing_can_be_assigned_deleted_or_added(of: Any) -> None:
    size = of(3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        size.width = 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        del size.width
    with pytest.raises((AttributeError, TypeError)):
        size.depth = 4
    assert not hasattr(size, "__dict__")


@pytest.mark.parametrize("of", PAIRS)
def test_copies_pickles_and_replacements_keep_the_fields(of: Any) -> None:
    size = of(3, 5, ["a"])
    assert pickle.loads(pickle.dumps(size)) == copy.copy(size) == copy.deepcopy(size) == size
    assert dataclasses.replace(size, height=6) == of(3, 6, ["a"])
    assert dataclasses.asdict(size) == {"width": 3, "height": 5, "names": ["a"]}
    assert [f.name for f in dataclasses.fields(of)] == ["width", "height", "names"]
    assert dataclasses.is_dataclass(of)


@pytest.mark.parametrize("of", [PlainChecked, FrozenChecked])
def test_what_the_class_defines_is_called(of: Any) -> None:
    assert (of(1).value, hash(of(1)), of(1) == of(1)) == (2, 7, True)


@pytest.mark.parametrize("made", [False, True], ids=["before", "behind the first instance"])
def test_signature_is_that_of_the_fields_at_any_time(made: bool) -> None:
    @frozen
    class Named:
        name: str
        count: int = 3

    class Derived(Named):
        def __init__(self, text: str) -> None:
            Named.__init__(self, text, len(text))

    if made:
        assert Named("a") == Named("a", 3)
    assert list(inspect.signature(Named).parameters) == ["name", "count"]
    assert inspect.signature(Named).parameters["count"].default == 3
    assert list(inspect.signature(Derived).parameters) == ["text"]
    assert (Derived("four").name, Derived("four").count) == ("four", 4)
    assert not hasattr(Named("a"), "__signature__")


def test_class_of_which_many_threads_make_the_first_instance_has_one_meaning() -> None:
    @frozen
    class Point:
        x: int
        y: int = 0

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(Point, range(200)))
    assert [(each.x, each.y) for each in found] == [(x, 0) for x in range(200)]


def test_fields_of_a_base_come_first() -> None:
    volume = Volume(3, depth=4)
    assert (volume.width, volume.height, volume.depth, volume.area()) == (3, 1, 4, 3)
    assert volume == Volume(3, 1, [], 4)
    assert repr(volume) == "Volume(width=3, height=1, names=[], depth=4)"
    assert [f.name for f in dataclasses.fields(Volume)] == ["width", "height", "names", "depth"]


@frozen
class FrozenOne:
    value: object


def test_a_class_of_one_field_compares_as_a_tuple_does() -> None:
    array, nan = np.zeros(3), float("nan")
    assert (FrozenOne(array) == FrozenOne(array)) is True
    assert FrozenOne(nan) == FrozenOne(nan)
    assert FrozenOne(1) == FrozenOne(1.0)
    assert FrozenOne((1,)) != FrozenOne(1)
    assert hash(FrozenOne("a")) == hash(FrozenOne("a"))


def test_objects_in_each_other_are_hashed_once() -> None:
    nested: object = 1
    for _ in range(100):  # 2**100 hashes if each asked for its field's twice
        nested = FrozenOne(nested)
    assert hash(nested) == hash(nested)


@pytest.mark.parametrize(
    "asked", [field(default=1, repr=False), field(default_factory=list, compare=False), field(kw_only=True)]
)
def test_a_field_that_asks_for_more_is_refused(asked: Any) -> None:
    with pytest.raises(TypeError, match="only a default_factory"):

        @frozen
        class Hidden:
            value: object = asked


@pytest.mark.parametrize("kind", ["KW_ONLY", "dataclasses.KW_ONLY", "dataclasses.InitVar[int]"])
def test_annotations_that_are_no_plain_fields_are_refused(kind: str) -> None:
    with pytest.raises(TypeError, match="plain ones"):
        frozen(type("Special", (), {"__annotations__": {"value": kind}}))


def test_a_mutable_default_is_refused() -> None:
    with pytest.raises(ValueError, match="default_factory"):

        @frozen
        class Shared:
            values: list[int] = []  # noqa: RUF012 - what is refused


@pytest.mark.parametrize("first", ["from __future__ import annotations\n", ""])
def test_fields_are_found_whether_annotations_are_texts_or_not(first: str) -> None:
    written = "class Size:\n    unit: ClassVar[str] = 'm'\n    width: int\n    height: int = 1\n"
    scope: dict[str, Any] = {"ClassVar": ClassVar}
    exec(compile(first + written, "sizes", "exec", dont_inherit=True), scope)  # annotations as this Python keeps them
    made = frozen(scope["Size"])
    assert made.__match_args__ == ("width", "height")
    assert made(3) == made(3, 1)
    assert [each.name for each in dataclasses.fields(made)] == ["width", "height"]


@pytest.mark.skipif(sys.version_info < (3, 14), reason="older Pythons evaluate annotations where they are written")
def test_a_field_may_name_a_type_that_only_type_checkers_import() -> None:
    scope: dict[str, Any] = {}
    exec(compile("class Size:\n    width: Width\n    height: int = 1\n", "sizes", "exec", dont_inherit=True), scope)
    assert frozen(scope["Size"])(3).height == 1
