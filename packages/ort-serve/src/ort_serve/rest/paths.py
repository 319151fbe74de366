"""Addresses below the place where the application is mounted in a larger one."""

from __future__ import annotations

from starlette.types import Scope


def path_within(scope: Scope) -> str:
    """Return a request's path without the prefix of a mount, which ASGI gives as ``root_path``."""
    path: str = scope["path"]
    prefix: str = scope.get("root_path", "")
    return path[len(prefix) :] if prefix and path.startswith(prefix + "/") else path
