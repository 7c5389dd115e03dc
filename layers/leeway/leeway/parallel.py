"""The same work on several things at a time, where most of it is waiting for an answer."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor


def in_parallel[T, R](work: Callable[[T], R], things: Sequence[T], at_once: int) -> list[R]:
    """Do the work on all of them, `at_once` at a time; what came of it, in their order.

    Raises:
        Exception: what the work on the first that failed raised, when all have been worked on.
    """
    if len(things) < 2:  # a thread for one thing would only take time to start
        return [work(thing) for thing in things]
    with ThreadPoolExecutor(min(at_once, len(things))) as pool:
        return list(pool.map(work, things))
