"""PopOptions: the options of a POP consumer besides the common ones; defaults are Java's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kourou.argument_types import check_field_types, check_int
from kourou.client.core.settings import ClientOptions, ClientSettings, split_options
from kourou.client.pop.lease_calls import check_invisible_ms


class PopKeywords(ClientOptions, total=False):
    """The keyword arguments of a POP consumer; see PopOptions for what they mean."""

    consume_from: Literal["last", "first"]
    max_messages: int
    wait_ms: int
    invisible_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PopOptions:
    """How a POP consumer works."""

    consume_from: Literal["last", "first"] = "last"
    """Where a group without an offset begins: `last` or `first`. In a queue whose first message is still in
    the broker's memory, a new group always begins there."""
    max_messages: int = 32
    """The default maximum number of messages of `receive` (`popBatchNums`)."""
    wait_ms: int = 15_000
    """How long `receive` waits for a message by default."""
    invisible_ms: int = 60_000
    """How long a message is invisible to others by default, from 1 s to 12 h (`popInvisibleTime`)."""

    def __post_init__(self) -> None:
        check_field_types(self)
        if self.consume_from not in ("last", "first"):
            raise ValueError(f"consume_from is 'last' or 'first', not {self.consume_from!r}")
        check_int("max_messages", self.max_messages, at_least=1)
        check_int("wait_ms", self.wait_ms, at_least=0)
        check_invisible_ms("invisible_ms", self.invisible_ms)


def split_pop_keywords(keywords: PopKeywords) -> tuple[PopOptions, ClientSettings]:
    """The consumer's own options, and the common settings. TypeError names an unknown keyword."""
    return split_options(keywords, PopOptions, "a POP consumer")
