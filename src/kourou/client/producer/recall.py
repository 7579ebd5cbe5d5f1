"""The recall handle, as a producer reads it: which broker has the message.

URL-safe Base64 of `v1 <topic> <brokerName> <timestamp> <UNIQ_KEY>`; the rest of it is the broker's.
"""

from __future__ import annotations

import base64
import binascii


def broker_of_handle(recall_handle: str) -> str:
    """The name of the broker that gave the handle; ValueError if it is none.

    >>> import base64
    >>> broker_of_handle(base64.urlsafe_b64encode(b"v1 Orders broker-a 1700000000000 7F00").decode())
    'broker-a'
    """
    try:
        padded = recall_handle + "=" * (-len(recall_handle) % 4)
        words = base64.b64decode(padded, altchars=b"-_", validate=True).decode().split(" ")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        words = []
    if len(words) != 5 or words[0] != "v1" or not words[2]:
        raise ValueError(
            f"{recall_handle[:100]!r} is not a recall handle; use SendResult.recall_handle of a message that "
            "was sent with delay_time_ms or deliver_time_ms"
        )
    return words[2]
