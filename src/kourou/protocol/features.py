"""Extensions of RocketMQ's protocol that only Kourou has, and how peers learn of them.

A broker announces its extensions in the response to HEART_BEAT, and to GET_KOUROU_FEATURES for peers that are
not clients, in the field `kourouFeatures`: their names, separated by commas. A peer uses one only where it
was announced; other brokers never see one. Request codes of extensions are 29000 to 29999, properties begin
with `__KOUROU_`, header fields with `kourou`. A name keeps its meaning forever; an extension that changes
gets another name.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

FEATURES_FIELD: Final = "kourouFeatures"


class Feature(enum.StrEnum):
    """The extensions by their names on the wire."""

    LARGE_PULL = "largePull"
    """A pull with `kourouLargePull` true gets as much as requested by `maxMsgNums` and `maxMsgBytes`, up to
    16,384 messages and the broker's `maxTransferBytesPerPull`, wherever they lie."""

    HA_HELLO = "haHello"
    """The HA link may be opened with a hello (protocol/ha.py)."""

    IDEMPOTENT_PRODUCERS = "idempotentProducers"
    """Sends with `kourouSequenced` true are stored once (protocol/producer_sequence.py)."""

    ATOMIC_PUBLISH = "atomicPublish"
    """Messages for several queues and brokers become visible together or not at all (protocol/atomic.py)."""


def format_features(features: Iterable[Feature]) -> str:
    """Features as the field has them.

    >>> format_features([Feature.LARGE_PULL])
    'largePull'
    """
    return ",".join(sorted(features))


def parse_features(text: str | None) -> frozenset[Feature]:
    """Those of an announcement that are known here; none where the field is absent."""
    known = {feature.value: feature for feature in Feature}
    return frozenset(known[name] for name in (text or "").split(",") if name in known)
