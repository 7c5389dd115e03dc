"""Calls of a fake that fail."""

from collections.abc import Callable
from typing import Any


def failing(
    port: Any, call: str, error: Exception, when: Callable[[], bool] = lambda: True
) -> None:
    """Have this call fail, always or while something holds."""
    real = getattr(port, call)

    def fails(*args: Any, **more: Any) -> Any:
        if when():
            raise error
        return real(*args, **more)

    setattr(port, call, fails)
