"""BrokerHooks: where an application that embeds a broker may look in and have a say.

A hook is a plain function, called on the broker's loop: it must be quick. One that raises
RequestError refuses the request; anything else it raises is logged and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from kourou.errors import RequestError

_log = logging.getLogger(__name__)

ContextT = TypeVar("ContextT")


@dataclass(frozen=True, slots=True)
class SendContext:
    """A message about to be stored."""

    topic: str
    queue_id: int
    producer_group: str
    body: bytes
    properties: str
    client_address: str


@dataclass(frozen=True, slots=True)
class PullContext:
    """Messages about to be given to a consumer."""

    topic: str
    queue_id: int
    consumer_group: str
    queue_offset: int
    message_count: int
    size_bytes: int
    client_address: str


@dataclass(slots=True)
class BrokerHooks:
    """Lists to append to before or after the start; empty ones cost nothing."""

    before_send: list[Callable[[SendContext], None]] = field(default_factory=list)
    after_pull: list[Callable[[PullContext], None]] = field(default_factory=list)

    @staticmethod
    def call(hooks: list[Callable[[ContextT], None]], context: ContextT) -> None:
        """Call each of them. RequestError passes: it is the hook's way to refuse."""
        for hook in hooks:
            try:
                hook(context)
            except RequestError:
                raise
            except Exception:
                _log.exception("hook %r failed", hook)
