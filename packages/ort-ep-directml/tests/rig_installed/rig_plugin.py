"""The rig as a plugin that is installed where this folder, and the one above it, are on the path.

So it is for tools that find providers by name, such as ``tools/support_matrix.py``; tests install it on their own.
"""

from __future__ import annotations

from ort_core.plugin import ExecutionProvider, hookimpl

ORT_PLUGIN_API = (2, 0)


@hookimpl
def ort_providers() -> list[type[ExecutionProvider]]:
    """Return the provider on the real DirectML for Linux."""
    from rig_dml import RigDmlProvider

    return [RigDmlProvider]
