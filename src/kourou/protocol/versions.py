"""Version numbers of the remoting protocol: positions in RocketMQ's list of releases.

Every release takes two numbers, first its snapshot, then itself. Only the numbers that behaviour
depends on have names here; `version_desc` names every one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

V3_0_7_SNAPSHOT: Final = 28
"""Since then a consumer takes RESET_CONSUMER_CLIENT_OFFSET and GET_CONSUMER_STATUS_FROM_CLIENT."""

V3_0_11: Final = 37
"""Since then a broker registers with a RegisterBrokerBody."""

V3_1_8_SNAPSHOT: Final = 62
"""Since then a consumer takes GET_CONSUMER_RUNNING_INFO and CONSUME_MESSAGE_DIRECTLY."""

V3_4_9: Final = 121
"""Since then `maxReconsumeTimes` of a request is honoured."""

V4_1_0_SNAPSHOT: Final = 232
"""Below it a Java client refuses to pull with an expression that is not a tag."""

V4_9_3: Final = 399
"""Up to it `_UNIQUE_KEY_QUERY` is left out of the text that a request's signature covers."""

STANDARD_JSON_VERSION: Final = 401
"""4.9.4: since then a client reads routes in standard JSON."""

V4_9_7: Final = 407
V4_9_8: Final = 409
V5_0_0: Final = 413
"""Since then the compressed registration body ends with a queue mapping section."""

V5_3_1: Final = 475
"""Above it a client understands GO_AWAY."""

V5_3_3: Final = 479
V5_5_0: Final = 513

CURRENT_VERSION: Final = V5_3_3
"""What we present: passes every check of a peer, and claims nothing of 5.4 and later."""


def version_desc(value: int) -> str:
    """RocketMQ's name of a version number, `V5_3_3` or `V5_3_3_SNAPSHOT`; beyond the list its last."""
    return _DESCRIPTIONS[min(max(value, 0), len(_DESCRIPTIONS) - 1)]


def _first_releases() -> Iterator[str]:
    # 3.0.0 alone had early releases, some of them without a snapshot.
    yield from ("SNAPSHOT", "ALPHA1", "BETA1", "BETA2", "BETA3", "BETA4", "BETA5")
    for beta in range(6, 10):
        yield f"BETA{beta}_SNAPSHOT"
        yield f"BETA{beta}"
    yield "FINAL"


def _patches_of(major: int, minor: int) -> range:
    if (major, minor) == (3, 0):
        return range(1, 16)
    return range(1, 10) if major == 3 and minor >= 3 else range(0, 10)


def _descriptions() -> Iterator[str]:
    yield from (f"V3_0_0_{name}" for name in _first_releases())
    for major in (3, 4, 5):
        for minor in range(10):
            for patch in _patches_of(major, minor):
                yield f"V{major}_{minor}_{patch}_SNAPSHOT"
                yield f"V{major}_{minor}_{patch}"
    yield "HIGHER_VERSION"


_DESCRIPTIONS: Final = tuple(_descriptions())
