"""`leeway`: finds the command, runs it and turns what goes wrong into one line and an exit code."""

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Iterator, MutableMapping
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from cli.completion import VARIABLE, know_shells
from cli.errors import BadInputError, CannotBeDoneError
from cli.output import tell

# The order is the one of `leeway --help`. Each module is imported when its command is asked for.
COMMANDS = {
    "demo": "cli.demo:demo",
    "apply": "cli.apply:apply",
    "get": "cli.get:get",
    "diff": "cli.diff:diff",
    "delete": "cli.delete:delete",
    "schema": "cli.schema:schema",
    "status": "cli.status:status",
    "pause": "cli.pause:pause",
    "resume": "cli.pause:resume",
    "schedule": "cli.schedule:schedule",
    "drain": "cli.drain:app",
    "explain": "cli.explain:explain",
    "reasons": "cli.reason_codes:reasons",
    "types": "cli.types:types",
    "select": "cli.select:select",
    "userdata": "cli.userdata:userdata",
    "launch": "cli.launch:launch",
    "sandbox": "cli.sandbox:app",
    "completion": "cli.completion:completion",
}

DEBUG = "LEEWAY_DEBUG"
DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


class _OnDemand(MutableMapping[str, Any]):
    """The commands by name, each built when it is looked up first."""

    def __init__(self, targets: dict[str, str]) -> None:
        self._targets = targets
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self._built[name] = _build(name, self._targets[name])
        return self._built[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._built[name] = command

    def __delitem__(self, name: str) -> None:
        del self._targets[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def __len__(self) -> int:
        return len(self._targets)


def _build(name: str, target: str) -> Any:
    module, _, attribute = target.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False)
        alone.command(name)(found)
        found = alone
    command = typer.main.get_command(found)
    command.name = name
    for each in (command, *getattr(command, "commands", {}).values()):
        each.help = _flowing(each.help or "")
    return command


def _flowing(text: str) -> str:
    """Make lines of paragraphs, so that they break where the terminal ends and not where the
    source did; a paragraph that begins with a backspace is left as it is."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        one.removeprefix("\b\n") if one.startswith("\b") else " ".join(one.split())
        for one in paragraphs
    )


class _Commands(typer.core.TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _OnDemand(dict(COMMANDS))


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        sys.stdout.write(f"leeway {version('leeway')}\n")
        raise typer.Exit


@app.callback()
def leeway(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Nodes that are about to go, drained and replaced in time.

    Exit codes: 0 done, 1 it could not be done, 2 bad input.
    """


def run(arguments: list[str] | None = None) -> int:
    """Run one command line (default: the process's own) and return its exit code."""
    try:
        outcome = app(args=arguments, prog_name="leeway", standalone_mode=False)
    except (BadInputError, CannotBeDoneError) as error:
        return _say(str(error), error.exit_code, error.details)
    except typer.TyperException as error:
        message = error.format_message().replace("Value error, ", "")
        return _say(message, error.exit_code) if message else error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return _say("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader has gone; stdout is closed here so that the interpreter does not fail on it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:  # noqa: BLE001 - the last line of defence: one line, no traceback
        return _say_unexpected(error)
    if outcome == INTERRUPTED:  # what typer makes of Ctrl-C
        return _say("interrupted", INTERRUPTED)
    return outcome if isinstance(outcome, int) else DONE


def _say(message: str, code: int, details: str = "") -> int:
    one_line = " ".join(message.split())
    tell(f"leeway: {one_line}")
    if details:
        tell(details)
    return code


def _say_unexpected(error: Exception) -> int:
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
        return FAILED
    return _say(f"{type(error).__name__}: {error} ({DEBUG}=1 shows where it came from)", FAILED)


def main() -> None:
    """The console script's entry point."""
    if VARIABLE in os.environ:
        know_shells()
    sys.exit(run())
