"""The whole extension surface: every hook that a plugin module may implement, documented, in one file.

A plugin is a module named in the entry-point group ``ort.plugins``. It states ``ORT_PLUGIN_API = (major, minor)``,
imports nothing heavy, and implements any of these hooks with ``ort_core.plugin.hookimpl``:

    from ort_core.plugin import hookimpl

    ORT_PLUGIN_API = (2, 0)

    @hookimpl
    def ort_providers():
        from ort_ep_example.provider import ExampleExecutionProvider

        return [ExampleExecutionProvider]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from ort_core.custom_ops.custom_op import CustomOp
    from ort_core.custom_ops.library import OpLibrary
    from ort_core.passes.base import Pass
    from ort_core.providers.provider import ExecutionProvider

PROJECT = "ort"
ENTRY_POINT_GROUP = "ort.plugins"
PLUGIN_API = (2, 0)
"""The version of this specification: plugins of another major version, or a newer minor one, are not loaded.

2.0 took out what nobody read: the workspace of ``CompiledPartition.run`` and ``PartitionPlan``,
``OutputPlan.reuses_input`` and ``OutputPlan.device``, ``RunState.stream``, ``CompiledPartition.update_constants``,
``ExecutionProvider.cost`` and ``Claim.cost_ns``. It added
``ExecutionProvider.takes_parts``. A plugin without providers that was written for 1.0 or 1.1 loads as before: nothing
that it uses has changed.
"""
CHANGED_FOR_PROVIDERS = {
    1: "its CompiledPartition.run takes a workspace, which is gone",
}
"""What a provider of an earlier major version has that the core does not call any more."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def ort_providers() -> Sequence[type[ExecutionProvider]]:
    """Return the execution provider classes of this plugin.

    Called once per environment at most, when the first session or command needs it; what it returned in an earlier
    process is remembered as long as the installed distributions are the same. Must not load the vendor's SDK: that
    belongs in ``ExecutionProvider.check``. Two plugins with one provider name make both unavailable, each
    with the reason.
    """
    raise NotImplementedError


@hookspec
def ort_devices() -> Mapping[str, object]:
    """Return device APIs by device name, such as ``{"cuda": CudaDeviceApi}``.

    They are factories, called with the device's number on first use.
    The session hands one instance per device to every provider on it, so that providers of several packages share
    streams and memory.
    """
    raise NotImplementedError


@hookspec
def ort_custom_ops() -> Sequence[OpLibrary | CustomOp]:
    """Return operators of this plugin: libraries, or operators made by ``custom_op`` and ``elementwise_op``.

    Called once per environment, when the first session is made. The operators are known to every session. One that
    two plugins claim belongs to neither: a model that uses it is told of both.
    """
    raise NotImplementedError


@hookspec
def ort_passes() -> Sequence[Pass]:
    """Return graph passes of this plugin, run with the basic passes at the places that their constraints name.

    Called once per environment, when the first session optimizes a model. A pass may introduce standard operators and
    operators of its own plugin only: it runs before any provider has claimed a node.
    """
    raise NotImplementedError


@hookspec
def ort_cli_commands() -> Mapping[str, object]:
    """Return subcommands for ``ort`` by name: each a typer application or a function with typer annotations.

    Called when the command line starts, for every command: import what a subcommand needs inside its function, when it
    runs.
    """
    raise NotImplementedError
