"""BrokerHooks: where an application that embeds a broker may look in and have a say.

A hook is a plain function, called on the broker's loop: it must be quick. One that raises
RequestError refuses the request; anything else it raises is logged and changes nothing.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Mapping
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


class TransactionEnd(enum.Enum):
    """How a transaction ends that no producer would end."""

    COMMIT = "commit"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUpTransaction:
    """A half message that no producer would end. `topic` is where it was sent to; `body` is as stored."""

    topic: str
    producer_group: str
    msg_id: str
    body: bytes
    properties: Mapping[str, str]
    born_timestamp: int
    check_times: int


@dataclass(slots=True)
class BrokerHooks:
    """Lists to append to before or after the start; empty ones cost nothing.

    `transaction_given_up`: the first hook that returns an end decides; if none does, the
    message goes to TRANS_CHECK_MAX_TIME_TOPIC. If storing that fails, the hooks are called again.
    `atomic_step`: called with the name of each step of an atomic publish when it is durable, before anything
    follows from it: `staged`, `decided`, `publishing`, `finished`, `ended`. For tests of crashes.
    """

    before_send: list[Callable[[SendContext], None]] = field(default_factory=list)
    after_pull: list[Callable[[PullContext], None]] = field(default_factory=list)
    transaction_given_up: list[Callable[[GivenUpTransaction], TransactionEnd | None]] = field(
        default_factory=list
    )
    atomic_step: list[Callable[[str], None]] = field(default_factory=list)

    def decide_given_up(self, context: GivenUpTransaction) -> TransactionEnd | None:
        """How a transaction ends that was given up, if a hook has a say."""
        for hook in self.transaction_given_up:
            try:
                end = hook(context)
            except Exception:
                _log.exception("hook %r failed", hook)
            else:
                if end is not None:
                    return end
        return None

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
