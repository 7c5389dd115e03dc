"""Opens the running sandbox of a state folder, and turns its errors into errors of a command."""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leeway_cli.errors import BadInputError, CannotBeDoneError

if TYPE_CHECKING:
    from leeway_sandbox.sandbox import Sandbox

StateDirOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Set the folder of the sandbox (default: one for each user)."),
]


def default_state_dir() -> Path:
    """Return the folder of a sandbox's state, as the XDG base directory specification defines."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "leeway" / "sandbox"


@contextmanager
def sandbox_errors() -> Iterator[None]:
    """Turn errors of the sandbox into errors of the command."""
    from leeway_sandbox.errors import RefusedError, SandboxError

    try:
        yield
    except RefusedError as error:
        raise BadInputError(" ".join(str(error).split())) from error
    except SandboxError as error:
        first, _, details = str(error).partition("\n")
        raise CannotBeDoneError(first, details) from error


@contextmanager
def running_sandbox(state_dir: Path | None) -> "Iterator[Sandbox]":
    """Open the sandbox that runs with this state folder.

    Raises:
        CannotBeDoneError: none runs, or it does not answer.
    """
    from leeway_sandbox.sandbox import Sandbox

    with sandbox_errors():
        sandbox = Sandbox.attach(state_dir or default_state_dir())
        with closing(sandbox):
            yield sandbox


def endpoints_as_data(sandbox: "Sandbox") -> dict[str, Any]:
    """Render the endpoints of a sandbox as JSON."""
    return {
        "cluster": sandbox.endpoints.cluster,
        "aws": sandbox.aws_url,
        "lambda": sandbox.lambda_url,
        "kubernetes": sandbox.kubernetes_url,
        "kubeconfig": str(sandbox.kubeconfig),
        "pid": sandbox.endpoints.pid,
    }
