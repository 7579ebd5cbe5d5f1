"""Whose handler runs here: so that a consumer knows when its own handler asks it to stop.

A stop waits for handlers, and one that waits for the stop would be waited for in vain. Worker tasks and
handler threads are marked once, when they begin; tasks that a handler starts inherit the mark.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

_owner: Final[ContextVar[object]] = ContextVar("kourou_handlers_of", default=None)


def mark_handlers_of(owner: object) -> None:
    """This task or thread runs handlers of `owner` from now on."""
    _owner.set(owner)


def is_handler_of(owner: object) -> bool:
    """Whether the caller is a handler of `owner`, or was started by one."""
    return _owner.get() is owner
