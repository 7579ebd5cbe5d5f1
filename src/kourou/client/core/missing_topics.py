"""MissingTopics: why a topic has no route, and what to do about it.

A name server forgets the topics of a broker that is gone, so that a topic may be missing because its broker
is down. Asks which brokers and topics there are, at most every few seconds for a topic: a program may try
again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from kourou.errors import KourouError
from kourou.protocol.names import is_inner_topic, is_retry_topic
from kourou.wording import nearest

if TYPE_CHECKING:
    from kourou.client.core.api import ClientApi

_KEPT_S: Final = 5.0
_MAX_KEPT: Final = 1_000
_UNKNOWN: Final = "the name server does not know it; create it with `kourou topic create`"


def missing_topic_reason(
    topic: str, namesrv: str, brokers: Collection[str], topics: Collection[str], *, to_publish: bool = False
) -> str:
    """Why a topic has no route, with the next step, from the brokers and topics that a name server knows."""
    if not brokers:
        return f"no broker is registered with the name server {namesrv}; start one, or check its namesrvAddr"
    is_inner = is_inner_topic(topic)
    near = nearest(topic, (name for name in topics if is_inner_topic(name) == is_inner))
    hint = f" (did you mean {near}?)" if near else ""
    steps = ["create it with `kourou topic create`", "start the broker that has it"]
    if to_publish:
        steps.append("set autoCreateTopicEnable=true at a broker")
    return f"the name server does not know it{hint}; {', '.join(steps[:-1])}, or {steps[-1]}"


class MissingTopics:
    """The reasons for topics without a route, as found a moment ago."""

    def __init__(self, api: ClientApi) -> None:
        self._api = api
        self._kept: dict[tuple[str, bool], tuple[float, str]] = {}
        self._finding = asyncio.Lock()

    async def reason(self, topic: str, *, to_publish: bool = False) -> str:
        """Why a topic has no route. What cannot be found out is left out."""
        if is_retry_topic(topic):  # made by the broker a moment after it has heard of the group
            return _UNKNOWN
        # One at a time: of thousands of sends at once the first asks, and the others get its answer.
        async with self._finding:
            now = asyncio.get_running_loop().time()
            found_at, reason = self._kept.get((topic, to_publish), (0.0, ""))
            if not reason or now - found_at >= _KEPT_S:
                reason = await self._find(topic, to_publish)
                if len(self._kept) >= _MAX_KEPT:
                    self._kept.clear()
                self._kept[topic, to_publish] = asyncio.get_running_loop().time(), reason
            return reason

    async def _find(self, topic: str, to_publish: bool) -> str:
        try:
            brokers = (await self._api.cluster_info()).broker_addr_table
            topics = await self._api.topic_names() if brokers else []
        except KourouError:
            return _UNKNOWN
        # In a thread: comparing tens of thousands of names takes half a second.
        return await asyncio.to_thread(
            missing_topic_reason, topic, self._api.namesrv, brokers, topics, to_publish=to_publish
        )
