"""The clients connected to a broker (203, 204, 328). Languages are names, as in LanguageCode."""

from __future__ import annotations

from msgspec import field

from kourou.protocol.bodies.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from kourou.protocol.bodies.shape import Body, Int32, Int64


class Connection(Body):
    """One connected client."""

    client_id: str = ""
    client_addr: str = ""
    language: str | None = None
    version: Int32 = 0


class ConsumerConnection(Body):
    """The consumers of a group (203)."""

    connection_set: list[Connection] = []
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ProducerConnection(Body):
    """The producers of a group (204)."""

    connection_set: list[Connection] = []


class ProducerInfo(Body):
    """One connected producer."""

    client_id: str = ""
    remote_ip: str = field(default="", name="remoteIP")
    language: str | None = None
    version: Int32 = 0
    last_update_timestamp: Int64 = 0


class ProducerTableInfo(Body):
    """All producers of a broker by group (328)."""

    data: dict[str, list[ProducerInfo]] = {}
