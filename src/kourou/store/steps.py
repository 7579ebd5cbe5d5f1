"""Work on the store in steps: what waits for the disk may run in another thread.

A generator yields functions that may run in any thread, and goes on in the owner's when one has
ended; what a function raises is raised where it was yielded. So the same work can be done here and
now (`run_steps`), or by an event loop that hands the waiting to threads.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Step: TypeAlias = Callable[[], None]
Steps: TypeAlias = Generator[Step, None, T]


def no_steps(result: T) -> Steps[T]:
    """Work that waits for nothing and comes to `result`."""
    yield from ()
    return result


def run_steps(steps: Steps[T]) -> T:
    """All of it here and now."""
    try:
        step = next(steps)
        while True:
            try:
                step()
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = next(steps)
    except StopIteration as done:
        result: T = done.value
        return result
