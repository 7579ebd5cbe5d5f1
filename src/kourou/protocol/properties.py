"""Message properties: their names, and the one string that carries them on wire and disk.

The string is `name 0x01 value 0x02 name 0x01 value 0x02 …`; 5.x writers end the last pair
with 0x02, 4.9 writers do not, and nothing is escaped. Reading follows Java: a piece without
0x01, without a name or without a value is passed over, the first 0x01 of a piece ends its
name, and of two pairs with one name the later counts.

A broker looks at few names and changes fewer, so besides the dictionary there are functions
that search and rewrite the string itself: `PropertyScanner` for text, `PropertyFinder` for the bytes of
stored records, which need no copy. Not here: the properties of many records at once
(property_columns.py), which properties a message gets (message.py, the broker), the 16-bit length before
the stored string (record.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kourou.protocol.layout import (
    MAX_PROPERTIES_BYTES,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    Buffer,
)

KEY_SEPARATOR: Final = " "
RAW_PROPERTY_SEPARATOR: Final = PROPERTY_SEPARATOR.encode()
MAX_SENT_PROPERTIES_BYTES: Final = MAX_PROPERTIES_BYTES - 1024
"""Of a message that is sent. The rest is room for what a broker adds: its region and cluster, and topics and
ids when the message is delayed, retried, half of a transaction, or a dead letter."""

_FindAll = Callable[[Buffer, int, int], list[bytes]]
_Match = Callable[[Buffer, int, int], re.Match[bytes] | None]
# Each name is a search of its own; for many of them a dictionary is cheaper.
_MAX_SEARCHES: Final = 8


class MessageConst:
    """Names that RocketMQ gives a meaning, under RocketMQ's constant names."""

    PROPERTY_KEYS: Final = "KEYS"
    PROPERTY_TAGS: Final = "TAGS"
    PROPERTY_WAIT_STORE_MSG_OK: Final = "WAIT"
    PROPERTY_DELAY_TIME_LEVEL: Final = "DELAY"
    PROPERTY_RETRY_TOPIC: Final = "RETRY_TOPIC"
    PROPERTY_REAL_TOPIC: Final = "REAL_TOPIC"
    PROPERTY_REAL_QUEUE_ID: Final = "REAL_QID"
    PROPERTY_TRANSACTION_PREPARED: Final = "TRAN_MSG"
    PROPERTY_PRODUCER_GROUP: Final = "PGROUP"
    PROPERTY_MIN_OFFSET: Final = "MIN_OFFSET"
    PROPERTY_MAX_OFFSET: Final = "MAX_OFFSET"
    PROPERTY_BUYER_ID: Final = "BUYER_ID"
    PROPERTY_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
    PROPERTY_ORIGIN_GROUP: Final = "ORIGIN_GROUP"
    PROPERTY_TRANSFER_FLAG: Final = "TRANSFER_FLAG"
    PROPERTY_CORRECTION_FLAG: Final = "CORRECTION_FLAG"
    PROPERTY_MQ2_FLAG: Final = "MQ2_FLAG"
    PROPERTY_RECONSUME_TIME: Final = "RECONSUME_TIME"
    PROPERTY_MSG_REGION: Final = "MSG_REGION"
    PROPERTY_TRACE_SWITCH: Final = "TRACE_ON"
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: Final = "UNIQ_KEY"
    PROPERTY_EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
    PROPERTY_MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
    PROPERTY_CONSUME_START_TIMESTAMP: Final = "CONSUME_START_TIME"
    PROPERTY_INNER_NUM: Final = "INNER_NUM"
    PROPERTY_INNER_BASE: Final = "INNER_BASE"
    DUP_INFO: Final = "DUP_INFO"
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
    PROPERTY_TRANSACTION_ID: Final = "__transactionId__"
    PROPERTY_TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
    PROPERTY_INSTANCE_ID: Final = "INSTANCE_ID"
    PROPERTY_CORRELATION_ID: Final = "CORRELATION_ID"
    PROPERTY_MESSAGE_REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
    PROPERTY_MESSAGE_TTL: Final = "TTL"
    PROPERTY_REPLY_MESSAGE_ARRIVE_TIME: Final = "ARRIVE_TIME"
    PROPERTY_PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
    PROPERTY_CLUSTER: Final = "CLUSTER"
    PROPERTY_MESSAGE_TYPE: Final = "MSG_TYPE"
    PROPERTY_POP_CK: Final = "POP_CK"
    PROPERTY_POP_CK_OFFSET: Final = "POP_CK_OFFSET"
    PROPERTY_FIRST_POP_TIME: Final = "1ST_POP_TIME"
    PROPERTY_SHARDING_KEY: Final = "__SHARDINGKEY"
    PROPERTY_FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"
    PROPERTY_REDIRECT: Final = "REDIRECT"
    PROPERTY_INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
    PROPERTY_INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
    PROPERTY_TRACE_CONTEXT: Final = "TRACE_CONTEXT"
    PROPERTY_PRIORITY: Final = "_SYS_MSG_PRIORITY_"
    PROPERTY_TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
    PROPERTY_TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
    PROPERTY_TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
    PROPERTY_TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
    PROPERTY_TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
    PROPERTY_TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
    PROPERTY_TIMER_OUT_MS: Final = "TIMER_OUT_MS"
    PROPERTY_TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
    PROPERTY_TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
    PROPERTY_START_DELIVER_TIME: Final = "__STARTDELIVERTIME"
    PROPERTY_BORN_HOST: Final = "__BORNHOST"
    PROPERTY_BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
    PROPERTY_CRC32: Final = "__CRC32#"
    PROPERTY_DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
    PROPERTY_TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."


# RocketMQ reads these too, but its clients let an application set them.
_OPEN_TO_USERS: Final = frozenset(
    {
        MessageConst.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
        MessageConst.PROPERTY_FORWARD_QUEUE_ID,
        MessageConst.PROPERTY_INNER_BASE,
        MessageConst.PROPERTY_INNER_MULTI_DISPATCH,
        MessageConst.PROPERTY_INNER_NUM,
        MessageConst.PROPERTY_ORIGIN_GROUP,
        MessageConst.PROPERTY_REDIRECT,
        MessageConst.PROPERTY_SHARDING_KEY,
        MessageConst.PROPERTY_START_DELIVER_TIME,
        MessageConst.PROPERTY_TRACE_CONTEXT,
        MessageConst.PROPERTY_TRANSACTION_CHECK_TIMES,
        MessageConst.PROPERTY_TRANSACTION_ID,
        MessageConst.PROPERTY_TRANSIENT_PREFIX,
    }
)
RESERVED_PROPERTIES: Final = (
    frozenset(value for name, value in vars(MessageConst).items() if name.isupper()) - _OPEN_TO_USERS
)
"""Names that an application may not use for its own properties; the same set as Java's."""


def encode_properties(properties: Mapping[str, str], *, trailing_separator: bool = True) -> str:
    """The property string of `properties`, in their order; 4.9 wants no `trailing_separator`.

    A separator inside a name or value would make other properties of it: ValueError.
    """
    # Written out instead of `property_pair`: clients encode the properties of each message.
    text = "".join(
        [f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}" for name, value in properties.items()]
    )
    count = len(properties)
    if text.count(NAME_VALUE_SEPARATOR) != count or text.count(PROPERTY_SEPARATOR) != count:
        for name, value in properties.items():
            _refuse_separators(name, value)
    return text if trailing_separator else text[:-1]


def property_pair(name: str, value: object) -> str:
    """One property as a string with its separator; for names and values that are known to contain none."""
    return f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}"


def property_start(name: str) -> str:
    """What precedes the value of a property: its name and the separator."""
    return name + NAME_VALUE_SEPARATOR


def decode_properties(text: str) -> dict[str, str]:
    """Every property in `text`, in the order of first appearance; never raises."""
    properties = {}
    for piece in text.split(PROPERTY_SEPARATOR):
        name, _, value = piece.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def properties_to_bytes(text: str) -> bytes:
    """UTF-8; a lone surrogate becomes `?`, as Java writes it."""
    return text.encode("utf-8", "replace")


def properties_from_bytes(raw: bytes) -> str:
    """The text of stored properties; bytes that are not UTF-8 become U+FFFD, as Java reads them."""
    return raw.decode("utf-8", "replace")


def get_property(text: str, name: str) -> str | None:
    """The value of one property, found in the string itself; None where it is absent."""
    return PropertyScanner(name).values(text)[0]


class PropertyScanner:
    """Finds a few names in many property strings, without a dictionary for each.

    >>> scan = PropertyScanner("TAGS", "KEYS")
    >>> scan.values("KEYS\\x01order-1\\x02WAIT\\x01true\\x02")
    [None, 'order-1']
    """

    __slots__ = ("_needles", "names")

    def __init__(self, *names: str) -> None:
        self.names = names
        self._needles = tuple([f"{PROPERTY_SEPARATOR}{name}{NAME_VALUE_SEPARATOR}" for name in names])

    def values(self, text: str) -> list[str | None]:
        """The value of each name, in the order of `names`; None where it is absent."""
        padded = f"{PROPERTY_SEPARATOR}{text}{PROPERTY_SEPARATOR}"
        # `in` before any method call: most names are absent from most messages, and the
        # operator costs a third of a search by method.
        values = [
            padded.rpartition(needle)[2].partition(PROPERTY_SEPARATOR)[0] if needle in padded else None
            for needle in self._needles
        ]
        # A pair without a value is no pair, so an earlier one of the same name still counts.
        return values if "" not in values else [decode_properties(text).get(name) for name in self.names]


class PropertyFinder:
    """Finds the values of a few names in the bytes of property strings.

    >>> find = PropertyFinder(["TAGS", "KEYS"])
    >>> raw = b"KEYS\\x01order-1\\x02WAIT\\x01true\\x02"
    >>> find.values(raw, 0, len(raw))
    [None, 'order-1']
    """

    __slots__ = ("_names", "_searches")

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        is_few = len(self._names) <= _MAX_SEARCHES
        self._searches = tuple(_searches(name) for name in self._names) if is_few else None

    def values(self, buffer: Buffer, start: int, end: int) -> list[str | None]:
        """The value of each name in the string from `start` to `end`; None where it is absent."""
        if self._searches is None:
            properties = decode_properties(properties_from_bytes(bytes(buffer[start:end])))
            return [properties.get(name) for name in self._names]
        # Written out, because this is most of what a filter costs.
        values: list[str | None] = []
        for find_all, match_first in self._searches:
            if found := find_all(buffer, start, end):
                values.append(found[-1].decode("utf-8", "replace"))
            elif first := match_first(buffer, start, end):
                values.append(first[1].decode("utf-8", "replace"))
            else:
                values.append(None)
        return values


def _searches(name: str) -> tuple[_FindAll, _Match]:
    """For pairs behind another one, and for a pair that is the first."""
    separator = re.escape(RAW_PROPERTY_SEPARATOR)
    pair = re.escape(property_start(name).encode("utf-8", "replace")) + b"([^%s]+)" % separator
    return re.compile(separator + pair).findall, re.compile(pair).match


_scan_prepared: Final = PropertyScanner(MessageConst.PROPERTY_TRANSACTION_PREPARED).values


def is_prepared(text: str) -> bool:
    """Whether properties mark a message as the half of a transaction."""
    if MessageConst.PROPERTY_TRANSACTION_PREPARED not in text:  # most are not, and to look for it is cheap
        return False
    (value,) = _scan_prepared(text)
    return value is not None and value.lower() == "true"


def remove_property(text: str, name: str) -> str:
    """`text` without the property, however often it is in there."""
    start = property_start(name)
    needle = PROPERTY_SEPARATOR + start
    before, found, after = f"{PROPERTY_SEPARATOR}{text}".partition(needle)
    if not found:
        return text
    if needle not in after:
        return f"{before}{PROPERTY_SEPARATOR}{after.partition(PROPERTY_SEPARATOR)[2]}"[1:]
    pieces = text.split(PROPERTY_SEPARATOR)
    return PROPERTY_SEPARATOR.join([piece for piece in pieces if not piece.startswith(start)])


def set_property(text: str, name: str, value: str) -> str:
    """`text` with the property at its end, in place of what it had under that name."""
    _refuse_separators(name, value)
    return join_properties(remove_property(text, name), property_pair(name, value))


def join_properties(text: str, more: str) -> str:
    """Two property strings as one; where both have a name, `more` counts."""
    if not text or text.endswith(PROPERTY_SEPARATOR):
        return text + more
    return f"{text}{PROPERTY_SEPARATOR}{more}" if more else text


def property_problem(name: str, value: str) -> str | None:
    """Why an application may not set this property, or None."""
    if not name.strip() or not value.strip():
        return f"property {name!r} has value {value!r}: neither name nor value may be blank"
    if name in RESERVED_PROPERTIES:
        return f"property {name!r} is reserved by RocketMQ; use the argument for it, or another name"
    return _separator_problem(name, value)


def _separator_problem(name: str, value: str) -> str | None:
    pair = name + value
    if NAME_VALUE_SEPARATOR in pair or PROPERTY_SEPARATOR in pair:
        return f"property {name!r} with value {value!r} contains \\x01 or \\x02, which separate properties"
    return None


def _refuse_separators(name: str, value: str) -> None:
    if problem := _separator_problem(name, value):
        raise ValueError(problem)
