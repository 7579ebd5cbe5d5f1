"""The recall handle: what a sender of a timer message is told, and brings back to recall it.

URL-safe base64 of `v1 <topic> <brokerName> <timestamp> <UNIQ_KEY>`. The timestamp is one that waits
in the same slot as the message.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final, NamedTuple

from kourou.protocol.names import TIMER_TOPIC, is_retry_topic
from kourou.protocol.properties import MessageConst, PropertyScanner

if TYPE_CHECKING:
    from kourou.broker.storage.inner_message import InnerMessage

_VERSION: Final = "v1"

_scan: Final = PropertyScanner(
    MessageConst.PROPERTY_REAL_TOPIC,
    MessageConst.PROPERTY_TIMER_OUT_MS,
    MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
).values


class RecallHandle(NamedTuple):
    """What a handle says."""

    topic: str
    broker_name: str
    timestamp_ms: int
    uniq_key: str

    def encode(self) -> str:
        """The handle as text."""
        text = " ".join((_VERSION, self.topic, self.broker_name, str(self.timestamp_ms), self.uniq_key))
        return base64.urlsafe_b64encode(text.encode()).decode()


def recall_handle(message: InnerMessage, broker_name: str) -> str | None:
    """The handle of a message that is about to wait for its time; None for every other."""
    if message.topic != TIMER_TOPIC:
        return None
    topic, out_ms, uniq_key = _scan(message.properties)
    if not topic or not out_ms or not uniq_key or is_retry_topic(topic):
        return None
    return RecallHandle(topic, broker_name, int(out_ms) + 1, uniq_key).encode()


def decode_recall_handle(text: str) -> RecallHandle:
    """ValueError: this is no handle."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        version, topic, broker_name, timestamp, uniq_key = raw.decode().split(" ")
    except (binascii.Error, UnicodeDecodeError, ValueError) as error:
        raise ValueError("recall handle is invalid") from error
    if version != _VERSION or not timestamp.isascii() or not timestamp.isdigit() or len(timestamp) > 18:
        raise ValueError("recall handle is invalid")
    return RecallHandle(topic, broker_name, int(timestamp), uniq_key)
