"""Settings: what all processes of a shop have to know, from one JSON file.

The launcher (`python -m webshop`) writes the file and puts its path into SHOP_SETTINGS.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "SHOP_SETTINGS"

# Half messages that a killed service left behind are decided within seconds, however long the service is
# away; timers are precise to a tenth of a second. The launcher starts the broker with these keys.
BROKER_KEYS: Final = {
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "1000",
    "transactionCheckMax": "1000000",
    "timerPrecisionMs": "100",
}


class Way(StrEnum):
    """How an event and the change in the database that it reports become one step."""

    TRANSACTION = "transaction"
    """A half message before the commit, and a check-back if the sender dies."""
    OUTBOX = "outbox"
    """A row beside the change; a relay sends it."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a service listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class SettingsError(Exception):
    """The settings cannot be used; the message says which, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one shop."""

    namesrv: str
    """The name server of the broker, `host:port`."""
    database: str
    """The URL of the database; each service has a schema of it."""
    services: Mapping[str, str]
    """`host:port` of each service that answers HTTP."""
    provider_secret: str
    """The key of the signatures of the payment provider."""
    folder: str
    """Of this run: logs, the broker's store."""
    way: str = "both"
    """`transaction`, `outbox`, or `both`: orders alternate."""
    pay_within_s: float = 900.0
    """An order that is not paid within this time is cancelled."""
    kill_points: str | None = None
    """A folder of armed kill points; None: there are none."""
    figures: str | None = None
    """The folder of Spark's output."""

    def __post_init__(self) -> None:
        wrong = list(self._wrong())
        if wrong:
            raise SettingsError("settings: " + "; ".join(wrong))

    def _wrong(self) -> list[str]:
        wrong = []
        for name in ("namesrv", "database", "provider_secret", "folder"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                wrong.append(f"{name} has to be a text that is not empty, not {value!r}")
        if self.way not in ("both", *Way):
            wrong.append(f"way is {self.way!r}; it has to be transaction, outbox or both")
        if not isinstance(self.pay_within_s, int | float) or self.pay_within_s <= 0:
            wrong.append(f"pay_within_s is {self.pay_within_s!r}; it has to be seconds above 0")
        for service, address in self.services.items():
            host, _, port = str(address).rpartition(":")
            if not host or not port.isdecimal():
                wrong.append(f"services.{service} is {address!r}; it has to be host:port")
        return wrong

    @classmethod
    def load(cls, path: str | Path | None = None) -> Settings:
        """From a file; by default the one that the environment names."""
        path = path or os.environ.get(VARIABLE)
        if not path:
            raise SettingsError(
                f"{VARIABLE} is not set: it is the path of the settings, which `python -m webshop` writes"
            )
        try:
            read = json.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise SettingsError(f"settings {path}: {error}; `python -m webshop` writes the file") from None
        return cls.from_json(read, where=f"settings {path}")

    @classmethod
    def from_json(cls, read: Any, *, where: str = "settings") -> Settings:
        """From a parsed JSON object."""
        if not isinstance(read, dict):
            raise SettingsError(f"{where}: a JSON object is expected, not {type(read).__name__}")
        known = {field.name for field in fields(cls)}
        if unknown := sorted(read.keys() - known):
            raise SettingsError(
                f"{where}: unknown {', '.join(unknown)}; known are {', '.join(sorted(known))}"
            )
        required = {"namesrv", "database", "services", "provider_secret", "folder"}
        if missing := sorted(required - read.keys()):
            raise SettingsError(f"{where}: {', '.join(missing)} missing")
        return cls(**read)

    def save(self, path: str | Path) -> None:
        """Write the file that `load` reads."""
        Path(path).write_text(json.dumps(asdict(self), indent=2) + "\n", "utf-8")

    def address(self, service: str) -> Address:
        """Where a service listens."""
        try:
            host, _, port = self.services[service].rpartition(":")
        except KeyError:
            raise SettingsError(
                f"settings: services has no {service!r}; it has {', '.join(sorted(self.services))}"
            ) from None
        return Address(host, int(port))

    def way_of(self, order_id: str) -> Way:
        """The way of an order's events: with `both`, half of the orders go each way."""
        if self.way == "both":
            return Way.OUTBOX if zlib.crc32(order_id.encode()) & 1 else Way.TRANSACTION
        return Way(self.way)
