"""`leeway`: finds the command, runs it, and turns an error into one line and an exit code."""

import importlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Iterator, MutableMapping, Sequence
from itertools import pairwise
from typing import Annotated, Any

import typer
import typer.core
import typer.main
from leeway_sandbox.errors import NotInstalledError

from leeway_cli.completion import VARIABLE, load_completion
from leeway_cli.errors import BadInputError, CommandError, as_clause
from leeway_cli.output import print_json, write_stderr

# In the order of `leeway --help`. A module is imported when its command is used.
COMMANDS = {
    "demo": "leeway_cli.demo.command:demo",
    "adopt": "leeway_cli.adopt.command:adopt",
    "release": "leeway_cli.adopt.command:release",
    "apply": "leeway_cli.manifests.commands:apply",
    "get": "leeway_cli.manifests.commands:get",
    "diff": "leeway_cli.manifests.commands:diff",
    "delete": "leeway_cli.manifests.commands:delete",
    "schema": "leeway_cli.manifests.schema:schema",
    "status": "leeway_cli.status.command:status",
    "nodes": "leeway_cli.nodes.command:nodes",
    "view": "leeway_cli.view.command:view",
    "cost": "leeway_cli.cost:cost",
    "metrics": "leeway_cli.metrics:metrics",
    "logs": "leeway_cli.logs:logs",
    "scale": "leeway_cli.manifests.commands:scale",
    "pause": "leeway_cli.manifests.commands:pause",
    "resume": "leeway_cli.manifests.commands:resume",
    "wake": "leeway_cli.wake:wake",
    "roll": "leeway_cli.roll:roll",
    "schedule": "leeway_cli.schedule:schedule",
    "doctor": "leeway_cli.doctor.command:doctor",
    "acceptance": "leeway_cli.acceptance.command:acceptance",
    "drain": "leeway_cli.drain.command:app",
    "explain": "leeway_cli.explain.command:app",
    "rehearse": "leeway_cli.rehearse.command:rehearse",
    "reasons": "leeway_cli.reason_codes:reasons",
    "types": "leeway_cli.selection.types:types",
    "select": "leeway_cli.selection.select:select",
    "userdata": "leeway_cli.userdata:userdata",
    "convert": "leeway_cli.convert.command:convert",
    "launch": "leeway_cli.launch.command:launch",
    "terminate": "leeway_cli.terminate.command:app",
    "switch": "leeway_cli.switch.command:switch",
    "sandbox": "leeway_cli.sandbox.command:app",
    "completion": "leeway_cli.completion:completion",
}

DEBUG = "LEEWAY_DEBUG"
DONE, FAILED, STOPPED = 0, 1, 130


class _LazyCommands(MutableMapping[str, Any]):
    """The commands by name. A command is built at its first lookup."""

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
        single = typer.Typer(add_completion=False)
        single.command(name)(found)
        found = single
    command = typer.main.get_command(found)
    command.name = name
    for each in (command, *getattr(command, "commands", {}).values()):
        each.help = _join_lines(each.help or "")
    return command


def _join_lines(text: str) -> str:
    """Join the lines of each paragraph, so that they wrap at the width of the terminal. A paragraph
    that begins with a backspace is not changed."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        one.removeprefix("\b\n") if one.startswith("\b") else " ".join(one.split())
        for one in paragraphs
    )


class _Commands(typer.core.TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _LazyCommands(dict(COMMANDS))


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
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
    """Drain and replace the nodes of Kubernetes clusters on EC2 before they stop.

    Errors: `leeway: sentence` on stderr; with -o json also the field `error` on stdout.

    Exit codes: 0 done, 1 the command failed, 2 bad input.
    """


def run(arguments: list[str] | None = None) -> int:
    """Run one command line (default: the process's own) and return its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    as_json = _requests_json(given)
    try:
        _check_none_is_empty(given)
        outcome = app(args=given, prog_name="leeway", standalone_mode=False)
    except CommandError as error:
        return _report(error, error.exit_code, as_json)
    except typer.TyperException as error:
        # Without a message, typer has printed the help already.
        problem = as_clause(_plain(error.format_message()))
        code = error.exit_code
        return _report(CommandError(f"{problem}."), code, as_json) if problem else code
    except (typer.Abort, KeyboardInterrupt):
        return _report(CommandError("The command was interrupted."), STOPPED, as_json)
    except BrokenPipeError:
        # The reader has closed the pipe. Without stdout the interpreter does not fail at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except NotInstalledError as error:
        return _report(CommandError(str(error)), FAILED, as_json)
    except Exception as error:  # noqa: BLE001 - nobody sees a traceback
        if os.environ.get(DEBUG):
            traceback.print_exception(error)
        problem = f"{type(error).__name__}: {as_clause(error)}"
        unexpected = CommandError(f"{problem}. Set {DEBUG}=1 to see the traceback.")
        return _report(unexpected, FAILED, as_json)
    if outcome == STOPPED:  # typer returns it after Ctrl-C
        return _report(CommandError("The command was interrupted."), STOPPED, as_json)
    return outcome if isinstance(outcome, int) else DONE


def _check_none_is_empty(arguments: Sequence[str]) -> None:
    """Check the arguments before a command reads them. A script that uses a variable that is not
    set passes an empty argument. Commands could not tell it from one that is not given, which often
    selects everything. The path of an empty text is the working directory, and a label selector of
    blanks selects all nodes.

    Raises:
        BadInputError: an argument or the value of an option is empty or blank.
    """
    for before, argument in pairwise(("leeway", *arguments)):
        is_pair = argument.startswith("--") and "=" in argument
        place, value = argument.split("=", 1) if is_pair else (before, argument)
        if not value.strip():
            raise BadInputError(
                f"{place}: expected a value after it, got an empty text. Is a variable of the "
                "shell not set?"
            )


def _plain(message: str) -> str:
    """Return a message about an option without the words of the library that validates it."""
    message = re.sub(r"Input should be (?=greater|less)", "expected a number ", message)
    return message.replace("Input should be", "expected").replace("Value error, ", "")


def _requests_json(arguments: Sequence[str]) -> bool:
    """Return whether a command line has `-o json`, also if it has other errors."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    pairs = {("-o", "json"), ("--output", "json")}
    return not pairs.isdisjoint(pairwise(options)) or not {"-ojson", "--output=json"}.isdisjoint(
        options
    )


def _report(error: CommandError, exit_code: int, as_json: bool) -> int:
    if as_json:
        further = {"details": error.details.splitlines()} if error.details else {}
        print_json({**(error.result or {}), "error": {"message": str(error)} | further})
    write_stderr(f"leeway: {error}")
    if error.details:
        write_stderr(error.details)
    return exit_code


def main() -> None:
    """Run the console script."""
    if VARIABLE in os.environ:
        load_completion()
    sys.exit(run())
