"""Runs a function on several items in threads, for work that mostly waits for responses."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor


def in_parallel[T, R](work: Callable[[T], R], items: Sequence[T], concurrency: int) -> list[R]:
    """Call `work` on every item, in `concurrency` threads at most; return the results in order.

    Raises:
        Exception: the error of the first item that failed, after all items have been processed.
    """
    if len(items) < 2:  # a thread for one item only costs the time to start it
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(concurrency, len(items))) as pool:
        # `map` would cancel the items that have not begun when one fails.
        futures = [pool.submit(work, item) for item in items]
    return [one.result() for one in futures]
