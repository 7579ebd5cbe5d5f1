"""Lists of consumer groups and of a group's members (300, 38)."""

from __future__ import annotations

from kourou.protocol.bodies.shape import Body


class GroupList(Body):
    """The groups that consume a topic (300)."""

    group_list: list[str] = []


class GetConsumerListByGroupResponseBody(Body):
    """The client ids of a group (38)."""

    consumer_id_list: list[str] = []
