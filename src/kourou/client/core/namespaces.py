"""Namespace: topics and groups as a client inside a namespace writes them and as brokers know them.

The rules (`ns%topic`, `%RETRY%ns%group`, system names as they are) are protocol/names.py's; here they
are bound to one client's namespace. A namespace may also be part of the name server's address:
`http://MQ_INST_1234567_abc.example.com:8080` is the namespace `MQ_INST_1234567_abc`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kourou.protocol.names import without_namespace, wrap_namespace

_INSTANCE: Final = re.compile(r"(?:\w+://)?(MQ_INST_\w+_\w+)\.")


@dataclass(frozen=True, slots=True)
class Namespace:
    """A client's namespace; the empty one changes no name.

    >>> Namespace("shop").wrap("Orders"), Namespace("shop").unwrap("%RETRY%shop%billing")
    ('shop%Orders', '%RETRY%billing')
    """

    name: str = ""

    def wrap(self, resource: str) -> str:
        """A topic or group as brokers know it; a name that is already inside stays unchanged."""
        return wrap_namespace(self.name, resource)

    def unwrap(self, resource: str) -> str:
        """A topic or group as the user wrote it; names of other namespaces stay unchanged."""
        return without_namespace(resource, self.name) if self.name else resource

    @classmethod
    def of(cls, name: str | None, namesrv: str = "") -> Namespace:
        """The given namespace, else the one in the name server's address."""
        if name:
            return cls(name)
        found = _INSTANCE.match(namesrv)
        return cls(found[1] if found else "")
