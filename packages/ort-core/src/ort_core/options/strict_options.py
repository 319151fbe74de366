"""What session and run options share: only known names, configuration entries, copying and comparing.

A configuration key that says the same as an attribute sets the attribute.
"""

from __future__ import annotations

import logging
import warnings
from typing import Any, ClassVar, TypeVar, cast

from ort_core.arguments import text
from ort_core.errors import InvalidArgument, InvalidValue, UnknownOption, did_you_mean
from ort_core.options.choices import ExecutionMode, GraphOptimizationLevel
from ort_core.options.option import Option
from ort_core.settings import (
    MAX_KEY_LENGTH,
    MAX_VALUE_LENGTH,
    Scope,
    SettingValue,
    find_setting,
    get_setting,
    suggested_names,
)

log = logging.getLogger(__name__)

SEVERITIES = (-1, 4)
"""Which levels of severity a log may have."""
ANY_SIZE = (0, float("inf"))
"""What a limit may be."""
ONE_LOGGER = (
    "lines of every session and run go to Python's logger 'ort_core': set_default_logger_severity sets its level"
)
"""Why levels and names of sessions' and runs' own lines change nothing."""
_LEVELS_BY_TEXT = {
    "disable_all": GraphOptimizationLevel.ORT_DISABLE_ALL,
    "enable_basic": GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "enable_extended": GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "enable_layout": GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
    "enable_all": GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_MODES_BY_TEXT = {"sequential": ExecutionMode.ORT_SEQUENTIAL, "parallel": ExecutionMode.ORT_PARALLEL}


class StrictOptions:
    """What both kinds of options share: strict names, configuration entries, copying and comparing.

    ``unknown_is_error`` is switched off in the subclasses of the drop-in, which warn as onnxruntime would stay silent.
    """

    unknown_is_error: ClassVar[bool] = True
    _scope: ClassVar[Scope]

    def __init__(self) -> None:
        self._config: dict[str, str] = {}

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and not isinstance(getattr(type(self), name, None), Option):
            known = sorted(n for n in dir(type(self)) if isinstance(getattr(type(self), n), Option))
            raise UnknownOption(
                f"{type(self).__name__} has no attribute {name!r} that can be set.{did_you_mean(name, known)} "
                f"Attributes: {', '.join(known)}"
            )
        object.__setattr__(self, name, value)

    def __copy__(self: _Self) -> _Self:
        copy = type(self).__new__(type(self))
        copy.__dict__.update({name: _shallow(value) for name, value in self.__dict__.items()})
        return copy

    def copy(self: _Self) -> _Self:
        """Return an independent copy; objects handed over are shared."""
        return self.__copy__()

    def __eq__(self, other: object) -> bool:
        try:
            return type(self) is type(other) and bool(self.__dict__ == other.__dict__)
        except ValueError:  # sample inputs: two arrays that are not one object count as different
            return False

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        shown = {name: value for name, value in self.__dict__.items() if not name.startswith("_")}
        text = ", ".join(f"{name}={value!r}" for name, value in {**shown, **self._config}.items())
        return f"{type(self).__name__}({text})"

    def _add_entry(self, key: str, value: str) -> None:
        key, value = text(key, "the key of a configuration entry"), text(value, f"the value of {key!r}")
        if not key or len(key) > MAX_KEY_LENGTH or len(value) > MAX_VALUE_LENGTH:
            raise InvalidValue(
                f"Config key is empty or longer than maximum length {MAX_KEY_LENGTH}, or its value than "
                f"{MAX_VALUE_LENGTH}: {len(key)} and {len(value)} characters"
            )
        try:
            setting = get_setting(self._scope, key)
            parsed = setting.parse(value)
        except InvalidArgument as error:
            if self.unknown_is_error:
                raise
            warnings.warn(str(error), stacklevel=3)
            self._config[key] = value
            return
        if setting.attribute:
            setattr(self, setting.attribute, _attribute_value(setting.attribute, parsed))
        if setting.no_effect:
            log.info("%s %s has no effect here: %s", self._scope.value, key, setting.no_effect)
        self._config[key] = value

    def _entry(self, key: str) -> str:
        if key not in self._config:
            hint = "" if find_setting(self._scope, key) else did_you_mean(key, suggested_names(self._scope))
            raise UnknownOption(f"{self._scope.value} does not have configuration with key: {key}.{hint}")
        return self._config[key]

    @property
    def config_entries(self) -> dict[str, str]:
        """The configuration entries that were set, as a copy."""
        return dict(self._config)

    def setting(self, key: str) -> SettingValue:
        """Return the typed value of a configuration key: what was set, else its default.

        Raises:
            UnknownOption: the key is not in the table of ``ort_core.settings``.
        """
        setting = get_setting(self._scope, key)
        text = self._config.get(key)
        if text is None:
            return setting.default
        try:
            return setting.parse(text)
        except InvalidArgument:
            if self.unknown_is_error:
                raise
            return setting.default  # warned about when it was set


_Self = TypeVar("_Self", bound=StrictOptions)


def _shallow(value: Any) -> Any:  # Any: whatever an attribute holds
    return value.copy() if isinstance(value, (dict, list, set)) else value


def _attribute_value(attribute: str, parsed: SettingValue) -> object:
    if attribute == "graph_optimization_level":
        return _LEVELS_BY_TEXT[cast(str, parsed)]
    return _MODES_BY_TEXT[cast(str, parsed)] if attribute == "execution_mode" else parsed
