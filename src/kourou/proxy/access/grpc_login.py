"""ProxyAccess: the account of a call, and whether it may do what no request to a broker decides.

Not here: the rights of sends, receives and whatever else reaches a broker in a request, which the link signs
with the account's own keys (links/): the broker's gate decides those.
"""

from __future__ import annotations

from typing import Protocol

from kourou.access.model import Account, Needs
from kourou.proxy.http2.call import Call


class ProxyAccess(Protocol):
    """The accounts of a proxy."""

    def login(self, call: Call) -> Account | None:
        """The account whose signature a call carries; None: access control is off, or the call is exempt.
        StatusError: UNAUTHORIZED."""
        ...

    def check(self, call: Call, needs: Needs) -> None:
        """Check that the caller has these rights (`kourou.access.needs` makes them). StatusError:
        UNAUTHORIZED."""
        ...
