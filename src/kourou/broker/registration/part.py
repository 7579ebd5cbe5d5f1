"""The last part of a broker: it registers when all others serve, and unregisters before any of them stops."""

from __future__ import annotations

from kourou.broker.part import BrokerPart
from kourou.broker.registration.out_api import BrokerIdentity, BrokerOuterApi
from kourou.broker.registration.registration import ChangeSignal, Registration
from kourou.config.broker import BrokerConfig
from kourou.transport.addresses import join_address
from kourou.transport.client import RemotingClient
from kourou.transport.tasks import TaskOwner


class OutboundPart(BrokerPart):
    """The connections to name servers: they outlive whatever registers."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    async def stop(self, timeout_ms: int) -> None:
        await self._client.stop()


class RegistrationPart(BrokerPart):
    """Registers one broker."""

    def __init__(
        self, registration: Registration, out_api: BrokerOuterApi, changed: ChangeSignal, tasks: TaskOwner
    ) -> None:
        self._registration = registration
        self._out_api = out_api
        self._changed = changed
        self._tasks = tasks

    async def start(self, tasks: TaskOwner) -> None:
        await self._registration.begin(tasks)

    def config_changed(self, old: BrokerConfig, new: BrokerConfig) -> None:
        if new.broker_permission != old.broker_permission:
            self._changed.soon()
        if new.namesrv_addr != old.namesrv_addr:
            self._tasks.start(self._out_api.namesrvs.refresh(), "name-servers-changed")

    async def stop(self, timeout_ms: int) -> None:
        await self._out_api.unregister_all()


def identity_of(config: BrokerConfig, address: str) -> BrokerIdentity:
    """What the name servers know the broker by."""
    return BrokerIdentity(
        cluster_name=config.broker_cluster_name,
        broker_name=config.broker_name,
        broker_id=config.broker_id,
        broker_addr=address,
        ha_server_addr=join_address(config.broker_ip2, config.ha_listen_port or config.listen_port + 1),
    )
