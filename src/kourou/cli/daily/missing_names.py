"""What to say about a topic or a group that is not there: the nearest name, or the next step."""

from __future__ import annotations

from collections.abc import Iterable

from kourou.admin.session import Admin
from kourou.admin.topics import topic_names
from kourou.errors import ConfigError, KourouError, ResponseError
from kourou.protocol.bodies import TopicRouteData
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import is_inner_topic, topic_problem
from kourou.wording import suggestion


async def existing_route(admin: Admin, topic: str, *, may_create: bool = False) -> TopicRouteData:
    """Where a topic is. ConfigError says what to do if it is not there: create it, where that makes sense."""
    if problem := topic_problem(topic):
        raise ConfigError(problem)
    try:
        return await admin.route(topic)
    except ResponseError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        raise await _missing_topic(admin, topic, may_create=may_create) from None


async def _missing_topic(admin: Admin, topic: str, *, may_create: bool) -> KourouError:
    where = ";".join(admin.namesrvs)
    if not await admin.brokers():
        return ConfigError(
            f"topic {topic}: no broker is registered at {where}; topics appear with their brokers"
        )
    names = [name for name in await topic_names(admin) if not is_inner_topic(name)]
    next_step = (
        f"kourou topic create {topic} creates it" if may_create else "kourou topic list shows all topics"
    )
    return ConfigError(
        f"topic {topic} does not exist at {where}{suggestion(topic, names) or f'; {next_step}'}"
    )


async def missing_group(admin: Admin, group: str, names: Iterable[str]) -> KourouError:
    """The error about a group that no broker knows; `names` are those that there are."""
    where = ";".join(admin.namesrvs)
    if not await admin.brokers():
        return ConfigError(
            f"group {group}: no broker is registered at {where}; groups appear with their brokers"
        )
    hint = suggestion(group, names) or "; kourou group list shows all groups"
    return ConfigError(f"group {group} does not exist at {where}{hint}")
