"""ProxyClient: one gRPC client. Two with the same id are one only if account and host are the same, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kourou.access.model import Account
from kourou.proxy.links.broker_link import BrokerLink, ClientLinks

if TYPE_CHECKING:
    from kourou.proxy.clients.client_settings import ClientSettings, GroupRules
    from kourou.proxy.clients.telemetry_stream import TelemetryStream


class ClientKey(NamedTuple):
    """What makes two calls come from the same client."""

    client_id: str
    account_name: str
    """Empty: the call is not signed."""
    host: str


class ProxyClient:
    """One client. Its state belongs to the id, not to a connection: calls may come on several."""

    __slots__ = (
        "account",
        "heartbeat",
        "key",
        "last_call_s",
        "links",
        "peer",
        "rules",
        "settings",
        "streams",
    )

    def __init__(self, key: ClientKey, peer: str, now_s: float) -> None:
        self.key = key
        self.account: Account | None = None
        """None: access control is off, or the client is exempt."""
        self.peer = peer
        """`host:port` of its first call."""
        self.links: ClientLinks
        """Its ways to brokers; set by the registry."""
        self.settings: ClientSettings | None = None
        """What it has sent over Telemetry; None: nothing yet."""
        self.heartbeat: tuple[ClientSettings, bytes] | None = None
        """The body of its heartbeats, which is the same until its settings change."""
        self.rules: GroupRules | None = None
        """Those of its group; None: it is no consumer, or they are not known yet."""
        self.streams: list[TelemetryStream] = []
        """Its open Telemetry streams that have delivered settings, the latest one last."""
        self.last_call_s = now_s
        """When it last showed that it is alive, on the loop's clock."""

    @property
    def client_id(self) -> str:
        """The id that the client gave itself."""
        return self.key.client_id

    def link(self, broker_name: str) -> BrokerLink:
        """Its way to a broker."""
        return self.links.link(broker_name)

    def __repr__(self) -> str:
        return f"ProxyClient({self.client_id!r} at {self.peer})"
