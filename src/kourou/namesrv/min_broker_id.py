"""MinBrokerIdChange: the lowest id of a broker group has changed, and the brokers to notify.

With slave-acting-master (5.x) the lowest slave takes over some of the master's duties, so the brokers of the
group are notified at once (NOTIFY_MIN_BROKER_ID_CHANGE) instead of at their next poll. Only created when
`notifyMinBrokerIdChanged` is set. Not here: sending (server.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from kourou.namesrv.broker_group import BrokerGroup
from kourou.protocol.headers import NotifyMinBrokerIdChangeRequestHeader


@dataclass(frozen=True, slots=True)
class MinBrokerIdChange:
    """One notification and the addresses it goes to."""

    header: NotifyMinBrokerIdChangeRequestHeader
    broker_addrs: tuple[str, ...]


def broker_joined(group: BrokerGroup) -> MinBrokerIdChange:
    """A broker with a lower id than all others has joined: the others are notified."""
    newest = group.brokers[group.min_broker_id]
    others = [addr for addr in group.broker_addrs.values() if addr != newest.broker_addr]
    return _change(group, others or [newest.broker_addr], ha_broker_addr=newest.ha_server_addr)


def broker_left(group: BrokerGroup, offline_broker_addr: str) -> MinBrokerIdChange:
    """The broker with the lowest id has left: the remaining ones are notified."""
    return _change(group, list(group.broker_addrs.values()), offline_broker_addr=offline_broker_addr)


def _change(
    group: BrokerGroup,
    addressees: list[str],
    *,
    offline_broker_addr: str | None = None,
    ha_broker_addr: str | None = None,
) -> MinBrokerIdChange:
    header = NotifyMinBrokerIdChangeRequestHeader(
        min_broker_id=group.min_broker_id,
        broker_name=group.name,
        min_broker_addr=group.brokers[group.min_broker_id].broker_addr,
        offline_broker_addr=offline_broker_addr,
        ha_broker_addr=ha_broker_addr,
    )
    return MinBrokerIdChange(header, tuple(addressees))
