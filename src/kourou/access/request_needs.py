"""What single requests need, by the names in their fields and bodies.

Names come from the fields that the processor of the request reads, bodies are decoded as it decodes them; a
request without a name that is needed is refused. Not here: which request code is which (requests.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias, TypeVar

from kourou.access.model import (
    AccessRefusedError,
    Action,
    Need,
    Needs,
    RefusalKind,
    ResourceType,
)
from kourou.access.needs import (
    ADMINISTRATOR,
    CREATE,
    GET,
    NOTHING,
    SUB,
    SUB_OR_GET,
    SUB_OR_UPDATE,
    UPDATE,
    act_for,
    belong,
    consume,
    follow_offset,
    group_need,
    is_shared_topic,
    joined,
    look_into,
    manage,
    own,
    publish,
    read_messages,
    topic_and_group,
    topic_need,
)
from kourou.protocol.atomic import decode_groups, parse_atomic_id
from kourou.protocol.bodies.assignment import QueryAssignmentRequestBody, SetMessageRequestModeRequestBody
from kourou.protocol.bodies.batch_ack import decode_batch_acks
from kourou.protocol.bodies.codec import decode_body
from kourou.protocol.bodies.heartbeat import CheckClientRequestBody, HeartbeatData
from kourou.protocol.bodies.locks import LockBatchRequestBody
from kourou.protocol.bodies.subscription import SubscriptionGroupConfig, SubscriptionGroupList
from kourou.protocol.bodies.topics import TopicConfigList, TopicQueueMappingDetail
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import REPLY_TOPIC_POSTFIX, is_retry_topic

Fields: TypeAlias = Mapping[str, str]
NeedsOf: TypeAlias = Callable[[Fields, bytes], Needs]
_Name = TypeVar("_Name")

MAX_NAMES: Final = 10_000
"""Topics and groups that one request of an ordinary account may name: each is checked."""
_MAX_NAME_LENGTH: Final = 255


def needed_name(fields: Fields, field: str, kind: str) -> str:
    """The name in a field. AccessRefusedError if there is none, with RocketMQ's words."""
    return _checked(fields.get(field, ""), kind)


def _checked(name: str, kind: str) -> str:
    if not name or name.isspace():
        raise _refused(f"{kind} is null.")
    if len(name) > _MAX_NAME_LENGTH:
        raise _refused(f"the name of the {kind} has {len(name)} characters, at most {_MAX_NAME_LENGTH} are")
    return name


def _refused(remark: str) -> AccessRefusedError:
    return AccessRefusedError(RefusalKind.NO_PERMISSION, ResponseCode.NO_PERMISSION, remark)


def _topic(fields: Fields, field: str = "topic") -> str:
    return needed_name(fields, field, "topic")


def _group(fields: Fields, field: str) -> str:
    return needed_name(fields, field, "consumer group")


# -- sends -------------------------------------------------------------------------------------------


def send(fields: Fields, _: bytes) -> Needs:
    """What goes to the topic of the field `topic`."""
    return publish(_topic(fields))


def send_v2(fields: Fields, _: bytes) -> Needs:
    """The same, with letters for names."""
    return publish(_topic(fields, "b"))


def reply(fields: Fields, _: bytes) -> Needs:
    """The answer to a request goes to a topic for replies: one that goes to another was never sent by a
    client, and would be a send without what a broker checks of sends."""
    return _publish_reply(_topic(fields))


def reply_v2(fields: Fields, _: bytes) -> Needs:
    """The same, with letters for names."""
    return _publish_reply(_topic(fields, "b"))


def _publish_reply(topic: str) -> Needs:
    if not topic.endswith(REPLY_TOPIC_POSTFIX) or is_retry_topic(topic):
        raise _refused(
            f"Topic:{topic} is no topic for replies: a reply goes to <cluster>{REPLY_TOPIC_POSTFIX}; other "
            "messages are sent"
        )
    return publish(topic)


def end_transaction(fields: Fields, _: bytes) -> Needs:
    """Java 4.x names no topic: that of the half message is checked when it is found."""
    return publish(_topic(fields)) if fields.get("topic") else NOTHING


def stage(fields: Fields, body: bytes) -> Needs:
    """Every topic that has messages in this part, and the producer."""
    topics = dict.fromkeys(group.topic for group in decode_groups(body))
    needs = [publish(_checked(topic, "topic")) for topic in _few(topics)]
    return joined([*needs, atomic(fields, body)])


def atomic(fields: Fields, _: bytes) -> Needs:
    """What acts for the producer of an atomic publish, and perhaps for a sink."""
    needs = act_for(parse_atomic_id(fields.get("kourouAtomicId", "")).producer_id)
    sink_id = fields.get("kourouSinkId")
    return needs if sink_id is None else joined([needs, own(_checked(sink_id, "sink"))])


def open_producer(fields: Fields, _: bytes) -> Needs:
    """To open a name fences the program that has opened it before."""
    return own(needed_name(fields, "kourouName", "producer")) if "kourouName" in fields else NOTHING


def named_producer(fields: Fields, _: bytes) -> Needs:
    """What is about a named producer."""
    return own(needed_name(fields, "kourouName", "producer"))


def sink(fields: Fields, _: bytes) -> Needs:
    """What is about a sink."""
    return own(needed_name(fields, "kourouSinkId", "sink"))


# -- consumers ---------------------------------------------------------------------------------------


def pull(fields: Fields, body: bytes) -> Needs:
    """Pulls of topics that have messages of their own only; of others administrators may."""
    return ADMINISTRATOR if is_shared_topic(fields.get("topic") or "") else read_queue(fields, body)


def read_queue(fields: Fields, _: bytes) -> Needs:
    """Pulls as RocketMQ has them, POP, and its acknowledgements."""
    return consume(_topic(fields), _group(fields, "consumerGroup"))


def consume_directly(fields: Fields, _: bytes) -> Needs:
    """To have a member of a group consume a message."""
    return manage(topic_and_group(_topic(fields), SUB, _group(fields, "consumerGroup"), SUB))


def send_back(fields: Fields, _: bytes) -> Needs:
    """To have a message delivered again to a group."""
    return belong(_group(fields, "group"))


def unregister(fields: Fields, _: bytes) -> Needs:
    """To leave a consumer group; producer groups are left freely."""
    return belong(_group(fields, "consumerGroup")) if fields.get("consumerGroup") else NOTHING


def members(fields: Fields, _: bytes) -> Needs:
    """The members of a group."""
    group = _group(fields, "consumerGroup")
    return Needs(auth=(group_need(group, SUB_OR_GET),), plain=(group_need(group, SUB),))


def query_offset(fields: Fields, _: bytes) -> Needs:
    """How far a group is."""
    return follow_offset(_topic(fields), _group(fields, "consumerGroup"), SUB_OR_GET)


def update_offset(fields: Fields, _: bytes) -> Needs:
    """To say how far a group is."""
    return follow_offset(_topic(fields), _group(fields, "consumerGroup"), SUB_OR_UPDATE)


def query_message(fields: Fields, _: bytes) -> Needs:
    """Messages by key."""
    return read_messages(_topic(fields), SUB_OR_GET)


def query_any_message(fields: Fields, _: bytes) -> Needs:
    """The same, as RocketMQ has it."""
    return look_into(_topic(fields), SUB_OR_GET)


def get_of_queue(fields: Fields, _: bytes) -> Needs:
    """Offsets and times of a queue."""
    return look_into(_topic(fields), GET)


def view_message(fields: Fields, _: bytes) -> Needs:
    """A message by its offset; without its topic it may be of any."""
    return read_messages(_topic(fields), GET) if fields.get("topic") else ADMINISTRATOR


def view_any_message(fields: Fields, _: bytes) -> Needs:
    """The same, as RocketMQ has it."""
    return look_into(_topic(fields), GET) if fields.get("topic") else NOTHING


def heartbeat(_: Fields, body: bytes) -> Needs:
    """All consumer groups of a client, with their subscriptions; producer groups are joined freely."""
    data = decode_body(body, HeartbeatData)
    needs: dict[Need, None] = {}
    for consumer in data.consumer_data_set:
        group = _checked(consumer.group_name, "consumer group")
        needs[group_need(group, SUB)] = None
        for subscription in consumer.subscription_data_set:
            needs[topic_need(_checked(subscription.topic, "topic"), SUB)] = None
    return Needs(auth=_few(needs), plain=_few(needs))


def lock(_: Fields, body: bytes) -> Needs:
    """Queues that a member of a group locks."""
    data = decode_body(body, LockBatchRequestBody)
    return _consume_all(data.consumer_group, (queue.topic for queue in data.mq_set))


def check_client(_: Fields, body: bytes) -> Needs:
    """A subscription that a member of a group is about to have."""
    data = decode_body(body, CheckClientRequestBody)
    subscription = data.subscription_data
    return _consume_all(data.group, () if subscription is None else (subscription.topic,))


def query_assignment(_: Fields, body: bytes) -> Needs:
    """Queues that a member of a group is assigned."""
    data = decode_body(body, QueryAssignmentRequestBody)
    return _consume_all(data.consumer_group, (data.topic,))


def batch_ack(_: Fields, body: bytes) -> Needs:
    """All topics and groups of many acknowledgements."""
    acks = decode_batch_acks(body).acks
    pairs = dict.fromkeys((ack.topic, ack.consumer_group) for ack in acks)
    return joined(_consume_all(group, (topic,)) for topic, group in _few(pairs))


def _consume_all(group: str, topics: Iterable[str]) -> Needs:
    group = _checked(group, "consumer group")
    names = _few(dict.fromkeys(topics))
    return joined([belong(group), *(consume(_checked(topic, "topic"), group) for topic in names)])


# -- management --------------------------------------------------------------------------------------


def of_topic(actions: frozenset[Action]) -> NeedsOf:
    """An action on one topic."""
    return lambda fields, _: manage((topic_need(_topic(fields), actions),))


def of_group(actions: frozenset[Action], field: str = "group") -> NeedsOf:
    """An action on one group."""
    return lambda fields, _: manage((group_need(_group(fields, field), actions),))


def of_both(actions: frozenset[Action], group_field: str = "group") -> NeedsOf:
    """An action on a topic and a group."""
    return lambda fields, _: manage(
        topic_and_group(_topic(fields), actions, _group(fields, group_field), actions)
    )


def get_of_both(group_field: str) -> NeedsOf:
    """Topics and group, as far as the request names them."""

    def needs(fields: Fields, _: bytes) -> Needs:
        topics = [topic for topic in fields.get("topicList", "").split(";") if topic]
        if fields.get("topic"):
            topics.append(fields["topic"])
        found = [topic_need(_checked(topic, "topic"), GET) for topic in _few(dict.fromkeys(topics))]
        return manage((*found, group_need(_group(fields, group_field), GET)))

    return needs


def group_first(needs_of: NeedsOf) -> NeedsOf:
    """The same, groups before topics: of several permissions that are missing RocketMQ names the first, and
    it looks at the groups of these requests first."""

    def needs(fields: Fields, body: bytes) -> Needs:
        found = needs_of(fields, body)
        auth = sorted(found.auth, key=lambda need: need.resource.type is not ResourceType.GROUP)
        return replace(found, auth=tuple(auth))

    return needs


def query_consume_queue(fields: Fields, _: bytes) -> Needs:
    """Units of a queue, and what a group would get of them."""
    found = [topic_need(_topic(fields), GET)]
    if fields.get("consumerGroup"):
        found.append(group_need(_group(fields, "consumerGroup"), GET))
    return manage(found)


def create_topics(_: Fields, body: bytes) -> Needs:
    """Many topics at once."""
    configs = decode_body(body, TopicConfigList).topic_config_list
    names = _few(dict.fromkeys(config.topic_name for config in configs))
    return manage(topic_need(_checked(name, "topic"), CREATE) for name in names)


def create_static_topic(fields: Fields, body: bytes) -> Needs:
    """A topic whose queues are spread over brokers."""
    topic = _topic(fields)
    if decode_body(body, TopicQueueMappingDetail).topic != topic:
        raise _refused("the topic of the header is not that of the body")
    return manage((topic_need(topic, CREATE),))


def create_group(_: Fields, body: bytes) -> Needs:
    """A group."""
    name = decode_body(body, SubscriptionGroupConfig).group_name
    return manage((group_need(_checked(name, "consumer group"), CREATE),))


def create_groups(_: Fields, body: bytes) -> Needs:
    """Many groups at once."""
    configs = decode_body(body, SubscriptionGroupList).group_config_list
    names = _few(dict.fromkeys(config.group_name for config in configs))
    return manage(group_need(_checked(name, "consumer group"), CREATE) for name in names)


def set_request_mode(_: Fields, body: bytes) -> Needs:
    """Whether a group pulls or pops."""
    data = decode_body(body, SetMessageRequestModeRequestBody)
    topic, group = _checked(data.topic, "topic"), _checked(data.consumer_group, "consumer group")
    return manage((topic_need(topic, SUB), group_need(group, UPDATE)))


def _few(names: Iterable[_Name]) -> tuple[_Name, ...]:
    found = tuple(names)
    if len(found) > MAX_NAMES:
        raise _refused(f"the request names {len(found)} topics and groups, at most {MAX_NAMES} are allowed")
    return found
