"""Reads parts at the same time. A part that fails becomes an `Unread`, and the others go on."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Self

from leeway_cli.doctor.facts import Read, Unread
from leeway_cli.doctor.finding import Severity
from leeway_cli.errors import AccountError, CommandError, as_clause, aws_errors, kubernetes_errors

AT_ONCE = 16


class Pending[T]:
    """A part that is being read."""

    def __init__(self, future: "Future[Read[T]]") -> None:
        self._future = future

    def get(self) -> Read[T]:
        """Wait for the part.

        Raises:
            CommandError: nothing can be read, because there are no valid credentials or no region.
        """
        return self._future.result()


class Parts(AbstractContextManager["Parts"]):
    """Starts the readers of parts in threads."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def start[T](self, part: str, severity: Severity, read: Callable[[], T]) -> Pending[T]:
        """Begin to read a part. `part` names it in a sentence; `severity` is that of the worst
        finding that it could hide."""
        return Pending(self._pool.submit(_read, part, severity, read))

    def start_with[T, N](
        self, needed: Read[N], part: str, severity: Severity, read: Callable[[N], T]
    ) -> Pending[T]:
        """Begin to read a part that needs another one. It cannot be read if the other was not."""
        if isinstance(needed, Unread):
            done: Future[Read[T]] = Future()
            done.set_result(Unread(part, needed.problem, severity))
            return Pending(done)
        return self.start(part, severity, lambda: read(needed))


def _read[T](part: str, severity: Severity, read: Callable[[], T]) -> Read[T]:
    try:
        with aws_errors(part), kubernetes_errors():
            return read()
    except CommandError as error:
        if isinstance(error, AccountError):
            raise
        return Unread(part, str(error), severity)
    except Exception as error:  # noqa: BLE001 - the other parts are worth reading
        return Unread(part, _unexpected(error), severity)


def _unexpected(error: Exception) -> str:
    return f"{type(error).__name__}: {as_clause(error)}. Set LEEWAY_DEBUG=1 to see the traceback."
