"""The next batch is made while the step at hand runs."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_END = object()


def ahead(source: Iterator[T]) -> Iterator[T]:
    """Yield what the source yields; a thread fetches one item ahead.

    It is for sources whose items depend on nothing that happens in between, such as batches with their own generators.
    """
    with ThreadPoolExecutor(1, "next batch") as pool:
        waiting: Future[object] = pool.submit(next, source, _END)
        while (item := waiting.result()) is not _END:
            waiting = pool.submit(next, source, _END)
            yield item  # type: ignore[misc]
