"""NamesrvList: where a client's name servers come from, and which one it uses.

In this order: what the application gave; `rocketmq.namesrv.addr` of a configuration file; the
environment's NAMESRV_ADDR; an HTTP address service (`rocketmq.namesrv.domain` and
`rocketmq.namesrv.domain.subgroup`, in the file or as ROCKETMQ_NAMESRV_DOMAIN and
ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP). File and service are read again while the client runs.
A client keeps using one server until it fails, as Java's does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kourou.client.core.settings import ClientSettings
from kourou.config.properties import parse_properties, properties_dict
from kourou.errors import (
    ConfigError,
    NameServerNotGivenError,
    NoNameServerError,
    ProtocolError,
    RemotingError,
)
from kourou.transport.address_service import AddressService
from kourou.transport.addresses import parse_address, parse_addresses

_log = logging.getLogger(__name__)

_ADDRESSES: Final = "rocketmq.namesrv.addr"
_DOMAIN: Final = "rocketmq.namesrv.domain"
_SUB_GROUP: Final = "rocketmq.namesrv.domain.subgroup"
_WAYS: Final = (
    "give it as namesrv='host:9876', as rocketmq.namesrv.addr in a file (config_file=…), "
    "in the environment as NAMESRV_ADDR, or by an address service (rocketmq.namesrv.domain)"
)


class NamesrvList:
    """The name servers a client knows, and the one it uses."""

    def __init__(self, settings: ClientSettings, environment: Mapping[str, str] = os.environ) -> None:
        self._settings = settings
        self._environment = environment
        self._addresses: list[str] = []
        self._current = ""

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(self._addresses)

    @property
    def current(self) -> str:
        """The one in use; NameServerNotGivenError when none is known."""
        if not self._addresses:
            raise NameServerNotGivenError(f"no name server is given: {_WAYS}")
        if self._current not in self._addresses:
            self._current = random.choice(self._addresses)
        return self._current

    def move_on(self, failed: str) -> None:
        """Use the next one, unless another caller has already moved on from `failed`."""
        if self._current == failed and failed in self._addresses:
            index = self._addresses.index(failed) + 1
            self._current = self._addresses[index % len(self._addresses)]

    async def refresh(self) -> None:
        """Read the list again; on failure the known list is kept. NoNameServerError when there is none yet,
        ConfigError when an address or file given by the program cannot be used."""
        try:
            found = await self._read()
        except (OSError, ConfigError, RemotingError, ProtocolError) as error:
            if self._settings.namesrv:
                raise  # given in the program: retrying does not help
            if not self._addresses:
                if self._settings.config_file is not None and isinstance(error, ConfigError):
                    raise
                raise NoNameServerError(f"the list of name servers cannot be read: {error}") from error
            _log.warning("keeping the known name servers: %s", error)
            return
        if not found:
            raise NameServerNotGivenError(f"no name server is given: {_WAYS}")
        if found != self._addresses:
            _log.debug("name servers: %s", ";".join(found))
            self._addresses = found

    async def _read(self) -> list[str]:
        given = self._settings.namesrv
        if given:
            return _checked(given if isinstance(given, str) else ";".join(given))
        keys = await self._file_keys()
        if text := keys.get(_ADDRESSES) or self._environment.get("NAMESRV_ADDR"):
            return _checked(text)
        domain = keys.get(_DOMAIN) or self._environment.get("ROCKETMQ_NAMESRV_DOMAIN")
        if not domain:
            return []
        sub_group = keys.get(_SUB_GROUP) or self._environment.get("ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP")
        return await AddressService(domain, sub_group or "nsaddr").fetch(self._settings.request_timeout_ms)

    async def _file_keys(self) -> dict[str, str]:
        if self._settings.config_file is None:
            return {}
        text = await asyncio.to_thread(_file_text, Path(self._settings.config_file))
        return properties_dict(parse_properties(text))


def _file_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"config_file {path.absolute()} cannot be read: {reason}") from None


def _checked(text: str) -> list[str]:
    # Java's clients accept addresses with and without `http://`.
    addresses = parse_addresses(text.replace("http://", "").replace("https://", ""))
    for address in addresses:
        parse_address(address)
    return list(dict.fromkeys(addresses))
