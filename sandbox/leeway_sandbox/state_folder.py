"""The folder of a running sandbox: its lock, and the file with its endpoints."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from leeway_sandbox.errors import SandboxError
from leeway_sandbox.startup import Endpoints

STATE_FILE, LOCK_FILE = "sandbox.json", "lock"


@contextmanager
def state_lock(state_dir: Path) -> Iterator[None]:
    """Hold the lock of the folder. The kernel releases it when this process exits or crashes."""
    with (state_dir / LOCK_FILE).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SandboxError(
                f"A sandbox already runs with its state in {state_dir}. Stop it with `leeway "
                "sandbox down`, or give another folder with --state-dir."
            ) from None
        yield


def is_running(state_dir: Path) -> bool:
    """Whether a process holds the lock of the folder."""
    try:
        with state_lock(state_dir):
            return False
    except SandboxError:
        return True


@contextmanager
def published(state_dir: Path, endpoints: Endpoints) -> Iterator[None]:
    """Write the endpoints for `read_endpoints`, readable only by their owner; delete them after."""
    file = state_dir / STATE_FILE
    file.touch(mode=0o600)
    file.write_text(json.dumps(asdict(endpoints), indent=2))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def read_endpoints(state_dir: Path) -> Endpoints:
    """Return the endpoints of the sandbox that runs with this folder.

    Raises:
        SandboxError: none runs.
    """
    try:
        state = json.loads((state_dir / STATE_FILE).read_text())
    except FileNotFoundError:
        raise SandboxError(
            f"No sandbox runs with its state in {state_dir}. Start one with `leeway sandbox "
            "up`, or give its folder with --state-dir."
        ) from None
    if not is_running(state_dir):
        raise SandboxError(
            f"The sandbox with its state in {state_dir} exited unexpectedly. Read the logs in "
            "that folder, then start the sandbox again."
        )
    return Endpoints(**{**state, "foreign_instances": tuple(state["foreign_instances"])})
