"""A module that starts a thread on import, as some clients do."""

import threading
from typing import Any

_thread = threading.Thread(target=threading.Event().wait, daemon=True)
_thread.start()


def handler(event: Any, context: Any) -> bool:
    """Whether the thread runs, which it does not in a fork of its process."""
    return _thread.is_alive()
