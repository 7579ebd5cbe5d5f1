"""What a line of the audit log says of a request: names of what it is about, never the values of fields."""

from __future__ import annotations

from typing import Any, Final, Protocol

from kourou.access.audit_log import AuditLog
from kourou.access.model import AccessCall
from kourou.config.properties import parse_properties
from kourou.errors import ConfigError
from kourou.protocol.codes import RequestCode

_SHOWN_FIELDS: Final = (
    "username",
    "subject",
    "resource",
    "accessKey",
    "globalWhiteAddrs",
    "topic",
    "group",
    "groupName",
    "consumerGroup",
    "srcGroup",
    "destGroup",
    "namespace",
    "key",
    "brokerName",
    "kourouName",
    "kourouBrokerName",
)
_SHOWN_NAMES: Final = 5
_MAX_NAME: Final = 127
_MAX_CONFIG_BYTES: Final = 10_000
_CONFIG_CODES: Final = frozenset({RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG})


def resource_of(call: AccessCall) -> str:
    """The resources that a call needs."""
    needs = call.needs.auth or call.needs.plain
    names = [str(need.resource) for need in needs[:_SHOWN_NAMES]]
    return ", ".join([*names, "…"] if len(needs) > _SHOWN_NAMES else names)


def audited_resource(call: AccessCall) -> str:
    """What an administrative request is about: of a change of configuration, the keys."""
    if call.code in _CONFIG_CODES:
        try:
            entries = parse_properties(call.body[:_MAX_CONFIG_BYTES].decode("utf-8", "replace"))
        except ConfigError:
            return ""  # its processor refuses it
        return ", ".join(entry.key[:_MAX_NAME] for entry in entries)
    shown = [f"{name}={call.fields[name][:_MAX_NAME]}" for name in _SHOWN_FIELDS if name in call.fields]
    return ", ".join(shown) or resource_of(call)


class Meter(Protocol):
    """Measures requests (transport/request.py)."""

    def answered(self, request: Any, code: int) -> None:
        """A request has its response."""
        ...


class AuditedRequest:
    """Stands for the meter of an administrative request, and writes its line when it has its answer."""

    __slots__ = ("_address", "_log", "_meter", "_resource", "_user")

    def __init__(self, log: AuditLog, user: str, address: str, resource: str, meter: Meter | None) -> None:
        self._log = log
        self._user = user
        self._address = address
        self._resource = resource
        self._meter = meter

    def begin(self, request: Any) -> None:
        """Nothing: it has begun."""

    def answered(self, request: Any, code: int | None) -> None:
        """The request has its response, or gets none."""
        self._log.administered(
            user=self._user,
            address=self._address,
            code=request.code,
            resource=self._resource,
            outcome=code,
        )
        if self._meter is not None and code is not None:
            self._meter.answered(request, code)
