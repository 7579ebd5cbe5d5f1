"""Half messages: what a transactional message is stored as, before and after its end is known.

    half      RMQ_SYS_TRANS_HALF_TOPIC/0, an ordinary record; REAL_TOPIC and REAL_QID say where it goes
    commit    the same message at its real place, with the commit bits; names the half's phy_offset
    copy      a half put again behind the others, to be looked at later
    given up  TRANS_CHECK_MAX_TIME_TOPIC/0, a half that was never ended
A copy and one given up carry the queue_offset of the half that they replace, so that a log which
ends with one of them tells what is missing (transactions.py). Clients do not see that mark.
When an open half is looked at (TransactionTimes) is decided from its age and the configuration alone.
Not here: when records are put (transactions.py).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from kourou.broker.delay.delayed_messages import is_delayed
from kourou.broker.storage.inner_message import InnerMessage
from kourou.errors import ProtocolError, RequestError
from kourou.protocol.codes import MessageSysFlag, ResponseCode
from kourou.protocol.layout import MAX_PROPERTIES_BYTES
from kourou.protocol.message import MessageExt
from kourou.protocol.names import RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC, is_retry_topic
from kourou.protocol.producer_sequence import raw_without_sequence
from kourou.protocol.properties import (
    MessageConst,
    PropertyScanner,
    get_property,
    is_prepared,
    properties_from_bytes,
    properties_to_bytes,
    property_pair,
    property_start,
    remove_property,
)

if TYPE_CHECKING:
    from kourou.config.broker import BrokerConfig
    from kourou.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2

MOVED_FROM: Final = "__KOUROU_MOVED_FROM"
"""On a copy and on one given up: the queue_offset of the half that it replaces."""
MOVED_TO: Final = "__KOUROU_MOVED_TO"
"""On an op record: the half did not end, it goes on at this queue_offset."""

_REAL_TOPIC: Final = MessageConst.PROPERTY_REAL_TOPIC
_REAL_QID: Final = MessageConst.PROPERTY_REAL_QUEUE_ID
_CHECK_TIMES: Final = MessageConst.PROPERTY_TRANSACTION_CHECK_TIMES
_TRANSACTION_BITS: Final = MessageSysFlag.TRANSACTION_MASK.value
_COMMIT: Final = MessageSysFlag.TRANSACTION_COMMIT_TYPE.value

# What a half says of its own past: nothing that a producer could know.
_OURS: Final = (
    _REAL_TOPIC,
    _REAL_QID,
    MessageConst.PROPERTY_TRANSACTION_ID,
    MessageConst.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    _CHECK_TIMES,
    MOVED_FROM,
)
# What is left of a record's room for the count of checks and for the mark of a copy.
_MAX_HALF_BYTES: Final = MAX_PROPERTIES_BYTES - 128
# How they begin; no other name that a producer is likely to use does.
_STARTS_OF_OURS: Final = (b"REAL_", b"__", b"TRAN_PREPARED_", b"TRANSACTION_")
_scan: Final = PropertyScanner(_REAL_TOPIC, _REAL_QID).values
_scan_group: Final = PropertyScanner(MessageConst.PROPERTY_PRODUCER_GROUP).values
_RAW_REAL_TOPIC: Final = property_start(_REAL_TOPIC).encode()


# -- sent ------------------------------------------------------------------------------------------
_MS_PER_HOUR: Final = 3_600_000


def is_half(header: SendMessageRequestHeader | SendMessageRequestHeaderV2, properties: str) -> bool:
    """Whether a message is sent as the half of a transaction.

    One that a consumer sends to come again is not, though it still carries the mark.
    """
    if not is_prepared(properties):
        return False
    if header.reconsume_times <= 0:
        return True
    return not is_retry_topic(header.topic) and _delay_level(properties) <= 0


def _delay_level(properties: str) -> int:
    text = get_property(properties, MessageConst.PROPERTY_DELAY_TIME_LEVEL) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def check_half(config: BrokerConfig, address: str, properties: str) -> None:
    """RequestError when a half cannot be taken."""
    if config.reject_transaction_message:
        raise RequestError(
            ResponseCode.NO_PERMISSION,
            f"the broker[{address}] sending transaction message is forbidden (rejectTransactionMessage)",
        )
    if may_be_delayed(properties) and _is_delayed(properties):
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal: a transactional message cannot be delayed as well; "
            "send it without DELAY and TIMER_ properties",
        )


def may_be_delayed(properties: str) -> bool:
    """A quick look, which may be wrong in favour of yes."""
    return "DELAY" in properties or "TIMER_" in properties


def _is_delayed(properties: str) -> bool:
    # Some clients say 0 for none. What is not a number at all would be refused only by the commit.
    if get_property(properties, MessageConst.PROPERTY_DELAY_TIME_LEVEL) == "0":
        properties = remove_property(properties, MessageConst.PROPERTY_DELAY_TIME_LEVEL)
    return is_delayed(properties)


def check_batch(properties: str) -> None:
    """RequestError when a batch as a whole is to be transactional; its messages are looked at as they are
    put."""
    if is_prepared(properties):
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal: a batch takes no transactional messages, send them singly",
        )


def group_of_plain(properties: str) -> str:
    """The producer group of a half whose end needs no look at its record; empty for one with a time of its
    own for checks, or with something like a delay."""
    if MessageConst.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS in properties or may_be_delayed(properties):
        return ""
    (group,) = _scan_group(properties)
    return group or ""


def half_properties(stored: bytes, topic: str, queue_id: int, uniq_key: str) -> bytes:
    """The properties of a half, made from those that the message would be stored with otherwise.

    RequestError: they leave no room for what a half is marked with later.
    """
    if any(map(stored.__contains__, _STARTS_OF_OURS)):
        text = properties_from_bytes(stored)
        for name in _OURS:
            text = remove_property(text, name)
        stored = properties_to_bytes(text)
    own = (
        property_pair(MessageConst.PROPERTY_TRANSACTION_ID, uniq_key)
        + property_pair(_REAL_TOPIC, topic)
        + property_pair(_REAL_QID, queue_id)
    )
    stored += properties_to_bytes(own)
    if len(stored) > _MAX_HALF_BYTES:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message is illegal: as a half its properties have {len(stored)} bytes, "
            f"{_MAX_HALF_BYTES} are allowed",
        )
    return stored


def half_sys_flag(sys_flag: int) -> int:
    """A half is an ordinary record: its transaction bits are clear, so its queue lists it."""
    return sys_flag & ~_TRANSACTION_BITS


# -- stored ----------------------------------------------------------------------------------------


def real_place(properties: str) -> tuple[str, int]:
    """Topic and queue_id that a half is meant for; ProtocolError when it does not say."""
    topic, queue_id = _scan(properties)
    if not topic or queue_id is None or not queue_id.isascii() or not queue_id.isdigit():
        raise ProtocolError(f"the half message has no destination: {topic}, queue {queue_id}")
    return topic, int(queue_id)


def check_times(half: MessageExt) -> int | None:
    """How often the producers were asked; None: never."""
    return property_number(half, _CHECK_TIMES)


def moved_from(record: MessageExt) -> int | None:
    """Which half a record replaces, if it is a copy or given up."""
    return property_number(record, MOVED_FROM)


def property_number(record: MessageExt, name: str) -> int | None:
    """A property as a number, None where it is absent or none."""
    text = record.properties.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def committed(half: MessageExt) -> InnerMessage:
    """The message of a half that is committed; ProtocolError if the half has no destination."""
    message = InnerMessage.of(half)
    message.topic, message.queue_id = real_place(message.properties)
    message.sys_flag = committed_sys_flag(half.sys_flag)
    message.prepared_phy_offset = half.phy_offset
    message.properties = committed_properties(message.properties)
    return message


def committed_sys_flag(sys_flag: int) -> int:
    """The flags of a half that is committed."""
    return sys_flag & ~_TRANSACTION_BITS | _COMMIT


def committed_properties(properties: str) -> str:
    """The properties of a half that is committed: without those that said where it goes."""
    properties = remove_property(remove_property(properties, _REAL_TOPIC), _REAL_QID)
    return remove_property(properties, MOVED_FROM) if MOVED_FROM in properties else properties


def committed_recent(properties: bytes) -> bytes:
    """The same for what `half_properties` made, where these are the last."""
    return raw_without_sequence(properties[: properties.rindex(_RAW_REAL_TOPIC)])


def copy_of(half: MessageExt, *, is_checked: bool) -> InnerMessage:
    """A half put again; counted if its producers are asked now."""
    message = InnerMessage.of(half)
    message.set_property(MOVED_FROM, str(half.queue_offset))
    if is_checked:
        message.set_property(_CHECK_TIMES, str((check_times(half) or 0) + 1))
    return message


def given_up(half: MessageExt) -> InnerMessage:
    """A half that was never ended, for operators."""
    message = InnerMessage.of(half)
    message.topic, message.queue_id = RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, 0
    message.set_property(MOVED_FROM, str(half.queue_offset))
    return message


def resumed(record: MessageExt) -> InnerMessage:
    """One given up, as a half that was never asked for."""
    message = without_mark(InnerMessage.of(record))
    message.topic, message.queue_id = RMQ_SYS_TRANS_HALF_TOPIC, 0
    message.set_property(_CHECK_TIMES, "0")
    return message


def without_mark(message: InnerMessage) -> InnerMessage:
    """The same message as clients may see it."""
    if MOVED_FROM in message.properties:
        message.remove_property(MOVED_FROM)
    return message


class NextStep(enum.Enum):
    """What to do with an open half message."""

    STOP = enum.auto()
    """It is too young, and so are those behind it."""
    PUT_AGAIN = enum.auto()
    """Its producer asked for more time: look at it later."""
    CHECK = enum.auto()
    """Ask a producer."""
    GIVE_UP = enum.auto()
    """No check was answered, and the message is too old."""


@dataclass(frozen=True, slots=True)
class TransactionTimes:
    """The rules of one round of checks."""

    end_queue_offset: int
    """Halves from there on were stored after the round began."""
    timeout_ms: int
    check_max: int
    reserved_ms: int

    @classmethod
    def of(cls, config: BrokerConfig, end_queue_offset: int) -> Self:
        """The rules as they are configured when the round starts."""
        return cls(
            end_queue_offset,
            config.transaction_time_out,
            config.transaction_check_max,
            config.file_reserved_time * _MS_PER_HOUR,
        )

    def next_step(self, half: MessageExt, age_ms: int | None) -> NextStep:
        """What to do with a half that is still open. `age_ms` None: it was born in the future."""
        if half.queue_offset >= self.end_queue_offset:
            return NextStep.STOP
        times = check_times(half)
        if (times is not None and times >= self.check_max) or (age_ms or 0) > self.reserved_ms:
            return NextStep.GIVE_UP
        immunity = half.properties.get(MessageConst.PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS)
        if immunity is not None:
            is_immune = age_ms is not None and age_ms < immunity_ms(immunity, self.timeout_ms)
            return NextStep.PUT_AGAIN if is_immune else NextStep.CHECK
        # One from the future, of a producer whose clock is ahead, is asked for: its time may never come.
        return NextStep.STOP if age_ms is not None and age_ms < self.timeout_ms else NextStep.CHECK


def immunity_ms(text: str, timeout_ms: int) -> int:
    """How long a producer wants not to be asked; what is not a number of seconds counts as the default."""
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return int(text) * 1000
    return timeout_ms
