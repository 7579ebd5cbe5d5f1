"""RouteCache: encoded route answers, kept until the route changes.

Bounded by bytes: a route of a thousand brokers is 200 KB, and a thousand such topics asked for
in four forms must not fill the memory. A route not found here is joined from kept pieces
(route_views.py), which costs a tenth of a millisecond for a thousand brokers.
"""

from __future__ import annotations

from collections.abc import Collection

from kourou.namesrv.route_json import JsonForm

# Room for some 100,000 routes of a few brokers each, or 160 of a thousand brokers.
DEFAULT_LIMIT_BYTES = 32 * 1024 * 1024


class RouteCache:
    """Answers by topic and form; the oldest go first when the limit is reached."""

    __slots__ = ("_bodies", "_limit_bytes", "size_bytes")

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._bodies: dict[str, dict[JsonForm, bytes]] = {}
        self.size_bytes = 0

    def get(self, topic: str, form: JsonForm) -> bytes | None:
        """The kept answer, or None."""
        bodies = self._bodies.get(topic)
        return None if bodies is None else bodies.get(form)

    def put(self, topic: str, form: JsonForm, body: bytes) -> None:
        """Keep an answer; others may have to go."""
        bodies = self._bodies.setdefault(topic, {})
        self.size_bytes += len(body) - len(bodies.get(form, b""))
        bodies[form] = body
        while self.size_bytes > self._limit_bytes:
            self.drop(next(iter(self._bodies)))

    def drop(self, topic: str) -> None:
        """Forget the answers for a topic, because its route has changed."""
        bodies = self._bodies.pop(topic, None)
        if bodies is not None:
            self.size_bytes -= sum(map(len, bodies.values()))

    def drop_all(self, topics: Collection[str]) -> None:
        """Forget the answers for many topics."""
        for topic in self._bodies.keys() & topics if len(topics) > 1 else topics:
            self.drop(topic)

    def clear(self) -> None:
        """Forget everything."""
        self._bodies.clear()
        self.size_bytes = 0
