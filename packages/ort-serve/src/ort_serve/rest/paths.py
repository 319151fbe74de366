"""Addresses below the place where the application is mounted in a larger one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def path_within(scope: Mapping[str, Any]) -> str:
    """Return a request's path without the prefix of a mount, which ASGI gives as ``root_path``."""
    path: str = scope["path"]
    prefix: str = scope.get("root_path", "")
    return path[len(prefix) :] if prefix and path.startswith(prefix + "/") else path


def model_of(scope: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the model and the version that an address of inference names; None for other addresses."""
    if scope["type"] != "http" or not scope["path"].endswith("/infer"):
        return None
    parts = path_within(scope).split("/")
    if parts[:3] != ["", "v2", "models"] or not all(parts[3:]):
        return None
    if len(parts) == 5:
        return parts[3], ""
    return (parts[3], parts[5]) if len(parts) == 7 and parts[4] == "versions" else None
