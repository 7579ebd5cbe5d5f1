"""SubscriptionKey: what one member of a consumer group wants, in a form that can be compared.

Without what may differ between members that want the same: versions, and the order of tags.
"""

from __future__ import annotations

from typing import NamedTuple

from kourou.protocol.bodies import ConsumerData, MessageModel, SubscriptionData


class SubscriptionKey(NamedTuple):
    """A member's model, and topic, type and expression of each of its subscriptions."""

    message_model: MessageModel | None
    subscriptions: frozenset[tuple[str, str, str]]

    @classmethod
    def of(cls, data: ConsumerData) -> SubscriptionKey:
        """What a heartbeat says of one group."""
        return cls(
            data.message_model,
            frozenset(
                (each.topic, each.expression_type, _expression(each)) for each in data.subscription_data_set
            ),
        )


def _expression(subscription: SubscriptionData) -> str:
    if subscription.expression_type not in ("", "TAG"):
        return subscription.sub_string
    tags = {tag.strip() for tag in subscription.sub_string.split("||")}
    return " || ".join(sorted(tags - {""})) or "*"
