"""ClusterWatch: says in the log why the clients of a proxy cannot be served: no name server or broker can be
reached, or the brokers refuse what the proxy does not sign.

Not here: /readyz, which looks at each request (assembly.py); users that cannot be read
(access/followed_accounts.py).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from kourou.errors import KourouError
from kourou.proxy.messages.refusals import unsigned_remedy
from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_LOOK_S: Final = 10.0
_PROBE_EVERY: Final = 30
"""Looks between two requests without a signature: where it is refused, that is in the broker's audit log."""
_START_S: Final = 1.0
_NOT_SERVED: Final = "gRPC clients cannot be served: "


class WatchedCluster(Protocol):
    """What is looked at (cluster.py)."""

    async def why_not_ready(self) -> str | None:
        """Why no broker can be reached; None: a name server knows some."""
        ...

    async def refusal_of_unsigned(self) -> str | None:
        """The words in which a broker refuses a request without a signature; None: it does not."""
        ...


class ClusterWatch:
    """`is_signing`: the proxy signs with the keys of its clients, so that no broker is asked."""

    def __init__(self, cluster: WatchedCluster, tasks: TaskOwner, *, is_signing: bool) -> None:
        self._cluster = cluster
        self._tasks = tasks
        self._is_signing = is_signing
        self._refusal: str | None = None
        self._looks_to_probe = 0
        self._has_looked = asyncio.Event()
        self.problem = ""
        """What keeps clients from being served; empty: nothing is known to be wrong."""

    async def start(self) -> None:
        """Look now and from now on. Name servers that do not answer are waited for only shortly."""
        self._tasks.start(self._follow(), "watch of the cluster")
        try:
            async with asyncio.timeout(_START_S):
                await self._has_looked.wait()
        except TimeoutError:
            pass

    async def _follow(self) -> None:
        while True:
            await self.look()
            self._has_looked.set()
            await asyncio.sleep(_LOOK_S)

    async def look(self) -> None:
        """Look once, and log what has changed."""
        problem = await self._find_problem()
        if problem and problem != self.problem:
            _log.warning("%s", problem)
        elif self.problem and not problem:
            _log.info("the brokers can be reached, and gRPC clients be served")
        self.problem = problem

    async def _find_problem(self) -> str:
        why_not = await self._cluster.why_not_ready()
        if why_not is not None:
            return f"{_NOT_SERVED}{why_not}"
        if self._is_signing:
            return ""
        if not self._looks_to_probe:
            try:
                self._refusal = await self._cluster.refusal_of_unsigned()
            except KourouError as error:
                return f"gRPC clients cannot use all brokers: {error}"
        self._looks_to_probe = (self._looks_to_probe or _PROBE_EVERY) - 1
        refusal = self._refusal
        return "" if refusal is None else f"{_NOT_SERVED}{refusal} ({unsigned_remedy(refusal)})"
