"""The ``ort`` command: its subcommands, those of plugins, and what an error or an interrupt becomes."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ort_core.cli.command_class import OrtCommand
from ort_core.cli.console import fail, make_writable
from ort_core.cli.failures import FAILED, INTERRUPTED, failure_text, reported
from ort_core.cli.interrupts import end_in_order, repeat_lost_interrupts
from ort_core.cli.plugin_commands import PACKAGES_OF_COMMANDS, find_plugin_commands, missing_command_text

# Name, and whether the module holds a typer application rather than a function of the command's name.
_COMMANDS = (
    ("run", False), ("inspect", False), ("optimize", False), ("compile", False), ("explain", False), ("bench", False),
    ("profile", False), ("compare", False), ("extract", False), ("providers", False), ("doctor", False),
    ("cache", True),
)  # fmt: skip


class OrtGroup(TyperGroup):
    """Finds plugins' subcommands when a name is not one of ours, or when all are listed; reports errors."""

    def list_commands(self, ctx: Any) -> list[str]:  # Any: typer's own Context, whose home differs by version
        """Return all names: ours in the order of the documentation, then those of plugins."""
        own = super().list_commands(ctx)
        return [*own, *(name for name in find_plugin_commands() if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # Any: as above
        """Return a command by name, ``None`` when there is none; of a known package's that is not here, say where."""
        found = super().get_command(ctx, cmd_name) or find_plugin_commands().get(cmd_name)
        if found is None and cmd_name in PACKAGES_OF_COMMANDS:
            raise typer.BadParameter(missing_command_text(cmd_name))
        return found

    def invoke(self, ctx: Any) -> Any:  # Any: as above
        """Run the chosen command."""
        with reported(is_debugging=bool(ctx.params.get("debug"))):
            return super().invoke(ctx)


def _show_version(asked: bool) -> None:
    if asked:
        from ort_core import __version__

        typer.echo(f"ort-core {__version__}")
        raise typer.Exit


def build_app() -> typer.Typer:
    """Return the application with its built-in commands. Imports nothing that only one command needs."""
    app = typer.Typer(
        name="ort", cls=OrtGroup, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
        help="Run, look into, measure and compare ONNX models.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip

    @app.callback()
    def options(
        version: Annotated[
            bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
        ] = False,
        debug: Annotated[bool, typer.Option("--debug", help="Show Python's traceback of an error.")] = False,
    ) -> None:
        pass

    for name, is_application in _COMMANDS:
        module = importlib.import_module(f"ort_core.cli.commands.{name}")
        if is_application:
            app.add_typer(module.app, name=name)
        else:
            app.command(name, cls=OrtCommand)(getattr(module, name))
    return app


def main() -> None:
    """Run the command line and exit with its code: 0 done, 1 the model or the run failed, 2 wrong usage.

    A signal that ends a command gives 128 and its number: 130 for an interrupt, 143 for SIGTERM.
    """
    repeat_lost_interrupts()
    end_in_order()
    make_writable()
    code: object = None
    try:
        try:
            build_app()(prog_name="ort")
        except KeyboardInterrupt:
            code = INTERRUPTED
        except SystemExit as ended:
            code = ended.code
        sys.stdout.flush()  # what Python cannot write at its own end, it tells in words of its own
    except OSError as error:  # of a reader (head, less) that went away nobody is told
        if not code and not isinstance(error, BrokenPipeError):
            fail(f"the output cannot be written: {failure_text(error)}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = code or FAILED
    sys.exit(code)  # type: ignore[arg-type]  # as it was given
