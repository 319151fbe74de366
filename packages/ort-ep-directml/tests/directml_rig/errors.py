"""What a rig says when it cannot go on, and when somebody broke a rule of Direct3D."""

from __future__ import annotations


class RigUnavailableError(Exception):
    """The rig cannot be built here; the text tells what is missing."""


class UnsupportedShaderError(Exception):
    """A shader needs something that the executor does not have; the text names it."""


class RuleBrokenError(Exception):
    """A call that Direct3D's rules forbid: on a GPU it would be undefined, or remove the device."""
