"""NamesrvAddresses: which name servers a broker registers with.

The list comes from `namesrvAddr`, or from an address service (transport/address_service.py). It may
change while the broker runs. Not here: what is told to name servers (out_api.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from kourou.config.broker import BrokerConfig
from kourou.config.checks import split_addresses
from kourou.errors import ProtocolError, RemotingError
from kourou.transport.address_service import AddressService

_log = logging.getLogger(__name__)


def address_service(config: BrokerConfig) -> AddressService | None:
    """The service that is to be asked: one is configured, and `namesrvAddr` is not."""
    if config.namesrv_addr or not config.rmq_address_server_domain:
        return None
    return AddressService(config.rmq_address_server_domain, config.rmq_address_server_sub_group)


class NamesrvAddresses:
    """The name servers as they are known now. `on_change` hears which came and which went."""

    def __init__(
        self, config: Callable[[], BrokerConfig], on_change: Callable[[list[str], list[str]], None]
    ) -> None:
        self._config = config
        self._on_change = on_change
        self._current: tuple[str, ...] = ()

    @property
    def current(self) -> tuple[str, ...]:
        """The addresses, in the order they were given."""
        return self._current

    def update(self, new: Iterable[str]) -> None:
        """Use these from now on."""
        before, self._current = self._current, tuple(dict.fromkeys(new))
        added = [address for address in self._current if address not in before]
        removed = [address for address in before if address not in self._current]
        if added or removed:
            _log.info("name servers: %s", ";".join(self._current) or "none")
            self._on_change(added, removed)

    async def refresh(self) -> None:
        """Take the list from the configuration, or ask the address service. If that fails, the
        list stays as it is."""
        config = self._config()
        service = address_service(config)
        if service is None:
            self.update(split_addresses(config.namesrv_addr or ""))
            return
        try:
            self.update(await service.fetch())
        except (RemotingError, ProtocolError) as error:
            _log.warning("keeping the known name servers: %s", error)
