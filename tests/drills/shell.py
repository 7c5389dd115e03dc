"""Runs commands of the runbook in bash, as a person does, against a sandbox.

`aws` and `leeway` are functions of that shell: each sends its words to this process, which answers
without the start of an interpreter. `kubectl` is the real one.
"""

import io
import re
import socketserver
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from leeway_cli import main

from tests.drills import aws_cli
from tests.end_to_end.environment import PATIENCE

_FUNCTIONS = r"""
ask() {
  local code
  exec 3<>"/dev/tcp/127.0.0.1/$DRILL_PORT"
  printf '%s\0' "$#" "$@" >&3
  IFS= read -r code <&3
  cat <&3
  exec 3>&-
  return "$code"
}
aws() { ask aws "$@"; }
leeway() { ask leeway "$@"; }
"""


EXAMPLE = "i-0b662ef9931388ba0"
_WORD = re.compile(rf"\b(?:[A-Z]+(?:_[A-Z]+)*|{EXAMPLE})\b")


def _filled(command: str, values: Mapping[str, str]) -> str:
    known = {**values, EXAMPLE: values.get("INSTANCE", EXAMPLE)}
    return _WORD.sub(lambda word: known.get(word[0], word[0]), command)


class Shell:
    """A shell whose commands use the sandbox of the environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self._errors: list[str] = []
        self._execution = ""

    def run(self, commands: Iterable[str], values: Mapping[str, str]) -> str:
        """Run commands of the page one after the other in one shell; return what they print on
        stdout, and then what they print on stderr.

        `values` replace the words in capitals, and the instance of the page's examples. ARN is the
        last execution that a command has listed.
        """
        filled = "\n".join(_filled(one, values) for one in commands)
        self._errors.clear()
        with self._answering() as port:
            done = subprocess.run(
                ["bash", "-c", _FUNCTIONS + filled],
                env={**self.environment, "DRILL_PORT": str(port)},
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        return done.stdout + done.stderr + "".join(self._errors)

    @contextmanager
    def _answering(self) -> Iterator[int]:
        shell = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                count = int(self._word())
                code, text = shell._answer([self._word() for _ in range(count)])
                self.wfile.write(f"{code}\n{text}".encode())

            def _word(self) -> str:
                word = bytearray()
                while (one := self.rfile.read(1)) not in (b"\0", b""):
                    word += one
                return word.decode()

        with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
            try:
                yield server.server_address[1]
            finally:
                server.shutdown()

    def _answer(self, words: list[str]) -> tuple[int, str]:
        program, *rest = [self._execution if word == "ARN" else word for word in words]
        if program == "aws":
            try:
                said = aws_cli.run(rest, self._client)
            except aws_cli.UsageError as error:
                raise AssertionError(f"aws {' '.join(rest)}: {error}") from error
            except (ClientError, BotoCoreError) as error:
                self._errors.append(f"{error}\n")
                return 254, ""
            if listed := re.findall(r'"DurableExecutionArn": "([^"]+)"', said):
                self._execution = listed[0]
            return 0, said
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main.run(rest)
        self._errors.append(err.getvalue())
        return code, out.getvalue()

    @cache  # noqa: B019 - a shell lives as long as its clients
    def _client(self, service: str) -> Any:
        endpoint = self.environment.get(f"AWS_ENDPOINT_URL_{service.upper()}")
        return boto3.client(
            service,
            endpoint_url=endpoint or self.environment["AWS_ENDPOINT_URL"],
            region_name=self.environment["AWS_REGION"],
            aws_access_key_id=self.environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.environment["AWS_SECRET_ACCESS_KEY"],
        )
