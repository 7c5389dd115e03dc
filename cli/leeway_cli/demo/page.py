"""`leeway demo --view`: `leeway view` for the cluster of a demo."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, cast

from leeway_sandbox.sandbox import Sandbox

from leeway_cli.errors import CannotBeDoneError
from leeway_cli.output import write_stderr

OPENED_WITHIN = 60.0
"""Seconds that a demo waits for a browser."""


@contextmanager
def shown(sandbox: Sandbox) -> Iterator[None]:
    """Serve the page of a sandbox. What happens in the context begins when a browser has opened the
    page, or after a minute.

    Raises:
        CannotBeDoneError: the page could not be served.
    """
    # A process of its own: it has the environment variables of the sandbox, and reads at its pace.
    command = [sys.executable, "-m", "leeway_cli", "view", "--every", "1s"]
    command += ["--cluster", sandbox.endpoints.cluster, "--kubeconfig", str(sandbox.kubeconfig)]
    environment = {**os.environ, **sandbox.environment()}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as page:
        lines = cast("IO[bytes]", page.stdout)
        try:
            address = lines.readline().decode().strip()
            if not address:
                raise CannotBeDoneError("The page could not be served.")
            write_stderr(f"{address}\nThe demo goes on then, or in {OPENED_WITHIN:.0f} s.")
            select.select([lines], [], [], OPENED_WITHIN)
            yield
        finally:
            page.terminate()
