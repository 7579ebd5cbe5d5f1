"""The last part of a broker: it registers when all others serve, and unregisters before any of them stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.broker.part import BrokerPart
from kourou.broker.registration.out_api import BrokerIdentity, BrokerOuterApi
from kourou.broker.registration.registration import Registration
from kourou.config.broker import BrokerConfig
from kourou.transport.addresses import join_address
from kourou.transport.client import RemotingClient
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices


class OutboundPart(BrokerPart):
    """The connections to name servers: they outlive whatever registers."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    async def stop(self, timeout_ms: int) -> None:
        await self._client.stop()


class RegistrationPart(BrokerPart):
    """Registers one broker."""

    def __init__(self, services: BrokerServices, registration: Registration, client: RemotingClient) -> None:
        self._services = services
        self._registration = registration
        self._tasks = services.tasks
        self.out_api = BrokerOuterApi(
            client,
            _identity(services.config, services.address),
            lambda: services.config,
            registration.soon,
        )

    async def start(self, tasks: TaskOwner) -> None:
        await self._registration.begin(self._services, self.out_api)

    def config_changed(self, old: BrokerConfig, new: BrokerConfig) -> None:
        if new.broker_permission != old.broker_permission:
            self._registration.soon()
        if new.namesrv_addr != old.namesrv_addr:
            self._tasks.start(self.out_api.namesrvs.refresh(), "name-servers-changed")

    async def stop(self, timeout_ms: int) -> None:
        await self.out_api.unregister_all()


def _identity(config: BrokerConfig, address: str) -> BrokerIdentity:
    return BrokerIdentity(
        cluster_name=config.broker_cluster_name,
        broker_name=config.broker_name,
        broker_id=config.broker_id,
        broker_addr=address,
        ha_server_addr=join_address(config.broker_ip2, config.ha_listen_port or config.listen_port + 1),
    )
