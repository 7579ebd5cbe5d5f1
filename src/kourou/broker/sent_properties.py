"""What a broker reads from the properties of a message sent to it, and what it adds.

The string is searched, not taken apart: a dictionary of all properties costs four times as much
as the few names that matter. Stored are the client's properties as they came, with the broker's
own behind them; where both have a name, the client's is taken out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from kourou.protocol.properties import (
    MessageConst,
    PropertyScanner,
    join_properties,
    properties_to_bytes,
    remove_property,
)
from kourou.protocol.tags import tags_code
from kourou.store.dispatch_request import index_keys

SentProperties: TypeAlias = tuple[bytes, str, int, tuple[str, ...], bool]
"""What to store, the unique id ("" for none), the code of the tags, the index keys, and whether the
sender waits for the flush. A plain tuple: there is one for each message."""

_UNIQ_KEY: Final = MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX

_UNIQ_KEY_NEEDLE: Final = f"\x02{_UNIQ_KEY}\x01"
_TAGS_NEEDLE: Final = f"\x02{MessageConst.PROPERTY_TAGS}\x01"
_KEYS_NEEDLE: Final = f"\x02{MessageConst.PROPERTY_KEYS}\x01"
_NO_WAIT: Final = f"\x02{MessageConst.PROPERTY_WAIT_STORE_MSG_OK}\x01false\x02"

_DELAYS: Final = PropertyScanner(
    MessageConst.PROPERTY_DELAY_TIME_LEVEL,
    MessageConst.PROPERTY_TIMER_DELAY_SEC,
    MessageConst.PROPERTY_TIMER_DELAY_MS,
    MessageConst.PROPERTY_TIMER_DELIVER_MS,
)


class PropertyRewriter:
    """Reads and completes properties for one broker."""

    def __init__(self, *, cluster: str, region: str, trace_on: bool) -> None:
        own = {
            MessageConst.PROPERTY_MSG_REGION: region,
            MessageConst.PROPERTY_TRACE_SWITCH: "true" if trace_on else "false",
            MessageConst.PROPERTY_CLUSTER: cluster,
        }
        self._own = "".join(f"{name}\x01{value}\x02" for name, value in own.items())

    def read(self, properties: str, new_uniq_key: Callable[[], str] | None = None) -> SentProperties:
        """The properties of one message; one without a unique id gets a new one, if that is given."""
        padded = f"\x02{properties}\x02"
        uniq_key = _value(padded, _UNIQ_KEY_NEEDLE) if _UNIQ_KEY_NEEDLE in padded else None
        tags = _value(padded, _TAGS_NEEDLE) if _TAGS_NEEDLE in padded else None
        keys = _value(padded, _KEYS_NEEDLE) if _KEYS_NEEDLE in padded else None
        if (
            "MSG_REGION" in properties
            or "TRACE_ON" in properties
            or "CLUSTER" in properties
            or "POP_CK" in properties
        ):
            properties = _without_ours(properties)
        stored = join_properties(properties, self._own)
        if not uniq_key and new_uniq_key is not None:
            uniq_key = new_uniq_key()
            stored += f"{_UNIQ_KEY}\x01{uniq_key}\x02"
        return (
            properties_to_bytes(stored),
            uniq_key or "",
            tags_code(tags),
            (uniq_key, keys) if uniq_key and keys and " " not in keys else index_keys(uniq_key, keys),
            _NO_WAIT not in padded,
        )


def _value(padded: str, needle: str) -> str:
    """The value of a name that is there; of several the last, as Java reads them."""
    return padded.rpartition(needle)[2].partition("\x02")[0]


def _without_ours(properties: str) -> str:
    for name in (
        MessageConst.PROPERTY_MSG_REGION,
        MessageConst.PROPERTY_TRACE_SWITCH,
        MessageConst.PROPERTY_CLUSTER,
        # A handle to another record: a message that is sent again must not carry it.
        MessageConst.PROPERTY_POP_CK,
    ):
        properties = remove_property(properties, name)
    return properties


def is_delayed(properties: str) -> bool:
    """Whether a message is to be delivered later."""
    return any(_DELAYS.values(properties))


def has_special_names(properties: str) -> bool:
    """Whether a name may be in there that changes what becomes of the message: a quick look, which may
    be wrong in favour of yes."""
    return "DELAY" in properties or "TIMER_" in properties or "TRAN_MSG" in properties
