"""Starts a thread when it is imported, as some clients do."""

import threading
from typing import Any

_thread = threading.Thread(target=threading.Event().wait, daemon=True)
_thread.start()


def handler(event: Any, context: Any) -> bool:
    """Whether the thread lives: it would not, in a fork of the process that started it."""
    return _thread.is_alive()
