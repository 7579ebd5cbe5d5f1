"""What to say about a topic or a group that is not there: the nearest name, or the next step."""

from __future__ import annotations

from collections.abc import Iterable

from kourou.admin.session import Admin
from kourou.admin.topics import topic_names
from kourou.errors import ConfigError, KourouError, ResponseError
from kourou.protocol.bodies import TopicRouteData
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import is_dlq_topic, is_inner_topic, is_retry_topic, topic_problem
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
    if (problem := await no_broker(admin)) is not None:
        return ConfigError(f"topic {topic}: {problem}")
    names = [name for name in await topic_names(admin) if _kind(name) == _kind(topic)]
    is_inner = is_inner_topic(topic)
    if may_create and not is_inner:
        next_step = f"kourou topic create {topic} creates it"
    else:
        next_step = f"kourou topic list{' --all' if is_inner else ''} shows all topics"
    # A name server forgets the topics of a broker that is gone: it cannot tell which of the two it is.
    near = suggestion(topic, names)
    hint = f"{near} If not" if near else ""
    return ConfigError(
        f"no registered broker has topic {topic} at {';'.join(admin.namesrvs)}{hint}: "
        f"it was never created, or its broker is down; {next_step}"
    )


def _kind(topic: str) -> tuple[bool, bool, bool]:
    """Topics of another kind are not meant: of retries by a name of dead letters, for one."""
    return is_inner_topic(topic), is_retry_topic(topic), is_dlq_topic(topic)


async def missing_group(admin: Admin, group: str, names: Iterable[str]) -> KourouError:
    """The error about a group that no broker knows; `names` are those that there are."""
    if (problem := await no_broker(admin)) is not None:
        return ConfigError(f"group {group}: {problem}")
    hint = suggestion(group, names) or "; kourou group list shows all groups"
    return ConfigError(f"group {group} does not exist at {';'.join(admin.namesrvs)}{hint}")


async def no_broker(admin: Admin) -> str | None:
    """That no broker is registered, and what to do; None if one is."""
    if await admin.brokers():
        return None
    return f"no broker is registered at {';'.join(admin.namesrvs)}; start one, or check its namesrvAddr"
