"""Who is connected, as tools want to see it: consumers and producers of a group, all producers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kourou.broker.groups.client_channel import ClientChannel
from kourou.broker.groups.consumer_group import ConsumerGroupInfo
from kourou.protocol.bodies import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from kourou.protocol.codes import LanguageCode


def consumer_connection(group: ConsumerGroupInfo) -> ConsumerConnection:
    """The members of a consumer group and what it subscribes to (203)."""
    return ConsumerConnection(
        [_connection(channel) for channel in group.channels.values()],
        dict(group.subscriptions),
        group.consume_type,
        group.message_model,
        group.consume_from_where,
    )


def producer_connection(channels: Iterable[ClientChannel]) -> ProducerConnection:
    """The clients of a producer group (204)."""
    return ProducerConnection([_connection(channel) for channel in channels])


def producer_table(
    groups: Mapping[str, Mapping[Any, ClientChannel]], *, wall_base_ms: int
) -> ProducerTableInfo:
    """All producers by group (328)."""
    return ProducerTableInfo(
        {
            group: [_producer_info(channel, wall_base_ms) for channel in channels.values()]
            for group, channels in groups.items()
        }
    )


def _connection(channel: ClientChannel) -> Connection:
    return Connection(
        client_id=channel.client_id,
        client_addr=channel.connection.remote_address,
        language=_language(channel),
        version=channel.version,
    )


def _producer_info(channel: ClientChannel, wall_base_ms: int) -> ProducerInfo:
    return ProducerInfo(
        client_id=channel.client_id,
        # Java's text of an address has the slash, and mqadmin prints it as it comes.
        remote_ip=f"/{channel.connection.remote_address}",
        language=_language(channel),
        version=channel.version,
        last_update_timestamp=wall_base_ms + channel.last_update_ms,
    )


def _language(channel: ClientChannel) -> str:
    """The name; binary headers carry numbers, and there may be newer languages."""
    try:
        return LanguageCode(channel.language).name
    except ValueError:
        return LanguageCode.OTHER.name
