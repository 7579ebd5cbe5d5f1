"""Subscriptions of one consumer by topic, its own retry topic included."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from kourou.client.core.subscription import Subscription, now_ms
from kourou.client.push.handlers import Handler
from kourou.protocol.bodies import SubscriptionData

_log = logging.getLogger(__name__)


class Subscriptions:
    """Who handles which topic. Topics are as brokers know them, with the namespace."""

    def __init__(self) -> None:
        self._by_topic: dict[str, Subscription] = {}
        self._handlers: dict[str, Handler] = {}
        self.is_new = True
        """Whether nothing was ever subscribed to."""

    def add(self, shown_topic: str, subscription: Subscription) -> None:
        """Add a topic, or replace its subscription. `shown_topic` is the user's name."""
        self._by_topic[subscription.data.topic] = subscription
        if subscription.handler is not None:
            self.is_new = False
            replaced = self._handlers.get(shown_topic)
            if replaced is not None and replaced != subscription.handler:
                _log.warning(
                    "topic %s is subscribed to again: its messages now go to %s, no longer to %s; "
                    "a consumer has one handler for each topic",
                    shown_topic,
                    subscription.handler.name,
                    replaced.name,
                )
            self._handlers[shown_topic] = subscription.handler

    def remove(self, shown_topic: str, topic: str) -> None:
        """Take a topic away."""
        self._by_topic.pop(topic, None)
        self._handlers.pop(shown_topic, None)

    def get(self, topic: str) -> Subscription | None:
        """The subscription to a topic."""
        return self._by_topic.get(topic)

    def handler(self, shown_topic: str) -> Handler | None:
        """Who handles messages of a topic. A retried one whose topic is not subscribed to any more goes to
        the only handler there is, as it would in Java; with several, nobody can tell whose it is."""
        found = self._handlers.get(shown_topic)
        if found is None and len(set(self._handlers.values())) == 1:
            found = next(iter(self._handlers.values()))
        return found

    def touch(self, topic: str) -> None:
        """Make the subscription newer than the broker's copy, so that it takes over the next heartbeat's."""
        if (subscription := self._by_topic.get(topic)) is not None:
            subscription.data.sub_version = now_ms()

    @property
    def topics(self) -> list[str]:
        """All topics."""
        return list(self._by_topic)

    def data(self) -> list[SubscriptionData]:
        """As brokers are told."""
        return [subscription.data for subscription in self._by_topic.values()]

    def __iter__(self) -> Iterator[Subscription]:
        return iter(list(self._by_topic.values()))

    def __len__(self) -> int:
        return len(self._handlers)
