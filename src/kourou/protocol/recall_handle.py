"""Recall handles: what a sender of a timer message gets, and returns to recall it.

URL-safe Base64 of `v1 <topic> <brokerName> <timestamp> <UNIQ_KEY>`.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, NamedTuple

_VERSION: Final = "v1"


class RecallHandle(NamedTuple):
    """The parts of a recall handle."""

    topic: str
    broker_name: str
    timestamp_ms: int
    uniq_key: str

    def encode(self) -> str:
        """The handle as clients carry it: URL-safe Base64."""
        text = " ".join((_VERSION, self.topic, self.broker_name, str(self.timestamp_ms), self.uniq_key))
        return base64.urlsafe_b64encode(text.encode()).decode()


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
