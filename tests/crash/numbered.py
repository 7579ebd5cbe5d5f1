"""Messages whose every byte follows from a number, so that each reader knows what was sent."""

from __future__ import annotations

import random
from collections.abc import Iterable

from kourou.protocol.message import MessageExt
from kourou.protocol.properties import encode_properties

TOPIC = "TopicTest"
FLAG = 7

# What a broker adds on the way of a message; anything else in it is what its producer gave.
_BROKER_MADE = frozenset(
    "CLUSTER MSG_REGION TRACE_ON WAIT DELAY REAL_TOPIC REAL_QID RETRY_TOPIC ORIGIN_MESSAGE_ID "
    "TIMER_OUT_MS TIMER_DELIVER_MS TIMER_DELAY_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES "
    "TRAN_MSG PGROUP __transactionId__ TRANSACTION_CHECK_TIMES TRAN_PREPARED_QUEUE_OFFSET".split()
)


def uniq_key(number: int) -> str:
    return f"ID{number}"


def key(number: int) -> str:
    """The key by which the message is found."""
    return f"K{number}"


def body(number: int) -> bytes:
    chance = random.Random(number)
    return b"%d " % number + chance.randbytes(chance.choice((0, 10, 100, 700)))


def properties(number: int) -> dict[str, str]:
    return {
        "UNIQ_KEY": uniq_key(number),
        "TAGS": "T",
        "KEYS": f"{key(number)} common",
        "größe": f"{number} Stück",
    }


def property_text(number: int, *, without: Iterable[str] = (), **more: str) -> str:
    """All properties as they are sent."""
    own = {name: value for name, value in properties(number).items() if name not in without}
    return encode_properties({**own, **more})


def number_of(message: MessageExt) -> int:
    return int(message.properties["UNIQ_KEY"].removeprefix("ID"))


def assert_as_sent(message: MessageExt) -> None:
    """It is what was sent, down to the last byte; beside that it has what brokers add, and nothing else."""
    number = number_of(message)
    assert message.body == body(number), message
    assert message.flag == FLAG, message
    sent = properties(number)
    own = {name: value for name, value in message.properties.items() if name not in _BROKER_MADE}
    assert own == sent, f"{own} instead of {sent}"
