"""Commands about consumer groups: their settings, and deleting them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kourou.admin.groups import (
    GroupOnBroker,
    delete_group,
    group_on_brokers,
    set_consume_mode,
    update_group,
    update_groups,
)
from kourou.admin.targets import Outcome
from kourou.admin.topics import TopicDeletion, delete_topic
from kourou.cli.admin.command import AdminCommand, Call
from kourou.cli.admin.formatting import group_config, retry_policy, text_map, truth
from kourou.cli.admin.options import ParsedArgs, required, value
from kourou.cli.admin.screen import Screen
from kourou.cli.admin.target_options import BROKER_OR_CLUSTER, EITHER, chosen_masters, show_outcomes
from kourou.cli.admin.topic_changes import attribute_changes, show_deletion
from kourou.cli.problems import UsageError
from kourou.errors import ConfigError, ProtocolError
from kourou.protocol.bodies import (
    GroupRetryPolicy,
    MessageRequestMode,
    SubscriptionGroupConfig,
    decode_body,
)
from kourou.protocol.names import dlq_topic, group_problem, retry_topic

_DASHES: Final = "=" * 29

# -- updateSubGroup, updateSubGroupList --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _GroupChange:
    config: SubscriptionGroupConfig
    brokers: list[Outcome]


def _config_of(args: ParsedArgs) -> SubscriptionGroupConfig:
    group = args.text("groupName")
    if problem := group_problem(group):
        raise UsageError(f"-g: {problem}")
    return SubscriptionGroupConfig(
        group_name=group,
        consume_enable=args.truth("consumeEnable", True),
        consume_from_min_enable=args.truth("consumeFromMinEnable"),
        consume_broadcast_enable=args.truth("consumeBroadcastEnable"),
        consume_message_orderly=args.truth("consumeMessageOrderly"),
        retry_queue_nums=args.number("retryQueueNums", 1),
        retry_max_times=args.number("retryMaxTimes", 16),
        group_retry_policy=_retry_policy(args.get("groupRetryPolicy")),
        broker_id=args.number("brokerId"),
        which_broker_when_consume_slowly=args.number("whichBrokerWhenConsumeSlowly", 1),
        notify_consumer_ids_changed_enable=args.truth("notifyConsumerIdsChanged", True),
        attributes=attribute_changes(args.text("attributes")),
    )


def _retry_policy(text: str | None) -> GroupRetryPolicy:
    if text is None:
        return GroupRetryPolicy()
    try:
        return decode_body(text.encode(), GroupRetryPolicy)
    except ProtocolError as error:
        raise UsageError(
            f"-p {text}: not a retry policy ({error}); an example: "
            '{"type":"CUSTOMIZED","customizedRetryPolicy":{"next":[1000,5000]}}'
        ) from None


async def _update_group(call: Call) -> _GroupChange:
    config = _config_of(call.args)
    return _GroupChange(config, await update_group(call.admin, await chosen_masters(call), config))


def _show_group_change(change: _GroupChange, screen: Screen) -> None:
    show_outcomes(change.brokers, screen, lambda address: f"create subscription group to {address} success.")
    screen.write(group_config(change.config, is_v4=screen.is_v4))


def _read_configs(path: Path) -> list[SubscriptionGroupConfig]:
    if not path.is_file():
        raise ConfigError(f"the file path {path} does not exists")
    try:
        configs = decode_body(path.read_bytes(), list[SubscriptionGroupConfig])
    except (OSError, ProtocolError) as error:
        raise ConfigError(f"{path}: not a JSON list of consumer groups: {error}") from None
    if not configs or not all(config.group_name for config in configs):
        raise ConfigError(f"{path}: must be a list of objects, each with a groupName")
    return configs


async def _update_groups(call: Call) -> list[Outcome]:
    configs = _read_configs(Path(call.args.text("filename")))
    return await update_groups(call.admin, await chosen_masters(call), configs)


def _show_groups_change(outcomes: list[Outcome], screen: Screen) -> None:
    # Apache's texts differ between the two options.
    what = "subscription group" if "clusterName" in screen.args else "group"
    show_outcomes(
        outcomes,
        screen,
        lambda address: f"submit batch of {what} config to {address} success, please check the result later.",
    )


# -- deleteSubGroup ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _GroupDeletion:
    group: str
    cluster: str | None
    brokers: list[Outcome]
    topics: list[TopicDeletion]
    """Retry and dead-letter topics, which are deleted with the group from a whole cluster."""


async def _delete_group(call: Call) -> _GroupDeletion:
    args = call.args
    group = args.text("groupName")
    cluster = None if "brokerAddr" in args else args.get("clusterName")
    brokers = await delete_group(
        call.admin, await chosen_masters(call), group, drops_offsets=args.truth("removeOffset")
    )
    topics = (
        [
            await delete_topic(call.admin, topic, cluster, may_be_missing=True)
            for topic in (retry_topic(group), dlq_topic(group))
        ]
        if cluster is not None
        else []
    )
    return _GroupDeletion(group, cluster, brokers, topics)


def _show_group_deletion(deletion: _GroupDeletion, screen: Screen) -> None:
    of_cluster = f" in cluster [{deletion.cluster}]" if deletion.cluster is not None else ""
    show_outcomes(
        deletion.brokers,
        screen,
        lambda address: (
            f"delete subscription group [{deletion.group}] from broker [{address}]{of_cluster} success."
        ),
    )
    for topic in deletion.topics:
        show_deletion(topic, screen)


def _delete_question(args: ParsedArgs) -> str:
    where = (
        f"broker {args.text('brokerAddr')}"
        if "brokerAddr" in args
        else f"cluster {args.text('clusterName')} with its retry and dead-letter topics"
    )
    offsets = ", offsets included" if args.truth("removeOffset") else ""
    return f"Delete group {args.text('groupName')} from {where}{offsets}?"


# -- getConsumerConfig -------------------------------------------------------------------------------


async def _consumer_config(call: Call) -> list[GroupOnBroker]:
    return await group_on_brokers(call.admin, call.args.text("groupName"))


def _show_consumer_config(found: list[GroupOnBroker], screen: Screen) -> None:
    for on_broker in found:
        if on_broker.config is None:
            screen.trouble(f"{on_broker.broker_name}: {on_broker.problem}")
            continue
        screen.head(f"{_DASHES}{on_broker.cluster}:{on_broker.broker_name}{_DASHES}")
        for name, cell in _fields(on_broker.config, screen.is_v4):
            screen.line(f"{name:<40}=  {cell}")


def _fields(config: SubscriptionGroupConfig, is_v4: bool) -> Iterator[tuple[str, object]]:
    """The settings in Apache's order; 4.9 has fewer."""
    yield "groupName", config.group_name
    yield "consumeEnable", truth(config.consume_enable)
    yield "consumeFromMinEnable", truth(config.consume_from_min_enable)
    yield "consumeBroadcastEnable", truth(config.consume_broadcast_enable)
    if not is_v4:
        yield "consumeMessageOrderly", truth(config.consume_message_orderly)
    yield "retryQueueNums", config.retry_queue_nums
    yield "retryMaxTimes", config.retry_max_times
    if not is_v4:
        yield "groupRetryPolicy", retry_policy(config.group_retry_policy)
    yield "brokerId", config.broker_id
    yield "whichBrokerWhenConsumeSlowly", config.which_broker_when_consume_slowly
    yield "notifyConsumerIdsChangedEnable", truth(config.notify_consumer_ids_changed_enable)
    if not is_v4:
        yield "groupSysFlag", config.group_sys_flag
        yield "consumeTimeoutMinute", config.consume_timeout_minute
        yield "subscriptionDataSet", _subscriptions(config)
        yield "attributes", text_map(config.attributes)


def _subscriptions(config: SubscriptionGroupConfig) -> str:
    subscriptions = config.subscription_data_set or []
    return ", ".join(f"{one.topic}:{one.expression_type}:{one.expression}" for one in subscriptions)


# -- setConsumeMode ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ModeChange:
    topic: str
    group: str
    mode: MessageRequestMode
    pop_share_queue_num: int
    brokers: list[Outcome]


async def _set_consume_mode(call: Call) -> _ModeChange:
    args = call.args
    topic, group = args.text("topicName"), args.text("groupName")
    try:
        mode = MessageRequestMode(args.text("mode").upper())
    except ValueError:
        raise UsageError(f"-m {args.text('mode')}: must be PULL or POP") from None
    queue_num = args.number("popShareQueueNum")
    brokers = await set_consume_mode(
        call.admin,
        await chosen_masters(call),
        topic=topic,
        group=group,
        mode=mode,
        pop_share_queue_num=queue_num,
    )
    return _ModeChange(topic, group, mode, queue_num, brokers)


def _show_mode_change(change: _ModeChange, screen: Screen) -> None:
    show_outcomes(change.brokers, screen, lambda address: f"set consume mode to {address} success.")
    screen.write(
        f"topic[{change.topic}] group[{change.group}] consume mode[{change.mode}] "
        f"popShareQueueNum[{change.pop_share_queue_num}]"
    )


_GROUP: Final = required("g", "groupName", "consumer group")

GROUP_COMMANDS: Final = (
    AdminCommand(
        name="updateSubGroup",
        about="Create a consumer group, or change its settings.",
        example="updateSubGroup -n 127.0.0.1:9876 -c DefaultCluster -g OrderService -r 5",
        options=(
            *EITHER,
            _GROUP,
            value("s", "consumeEnable", "whether it may consume (default: true)"),
            value("m", "consumeFromMinEnable", "whether it may start at the oldest message"),
            value("d", "consumeBroadcastEnable", "whether it may broadcast"),
            value("o", "consumeMessageOrderly", "whether it consumes in order"),
            value("q", "retryQueueNums", "queues of its retry topic (default: 1)"),
            value("r", "retryMaxTimes", "retries before a message becomes a dead letter (default: 16)"),
            value("p", "groupRetryPolicy", "delays between retries, in JSON"),
            value("i", "brokerId", "id of the broker it reads from (default: 0, the master)"),
            value("w", "whichBrokerWhenConsumeSlowly", "id of the broker it reads from when it lags"),
            value("a", "notifyConsumerIdsChanged", "whether members are notified of each other at once"),
            value("", "attributes", "changes of attributes, +key=value,-key"),
        ),
        ask=_update_group,
        show=_show_group_change,
    ),
    AdminCommand(
        name="updateSubGroupList",
        about="Create or change all consumer groups listed in a JSON file.",
        example="updateSubGroupList -n 127.0.0.1:9876 -c DefaultCluster -f groups.json",
        options=(
            *BROKER_OR_CLUSTER,
            required("f", "filename", "file with a JSON list of group settings, each with its groupName"),
        ),
        ask=_update_groups,
        show=_show_groups_change,
    ),
    AdminCommand(
        name="deleteSubGroup",
        about="Delete a consumer group from a broker, or from a cluster with its retry and dead letters.",
        example="deleteSubGroup -n 127.0.0.1:9876 -c DefaultCluster -g OrderService",
        options=(*EITHER, _GROUP, value("r", "removeOffset", "true: delete its offsets as well")),
        ask=_delete_group,
        show=_show_group_deletion,
        question=_delete_question,
    ),
    AdminCommand(
        name="getConsumerConfig",
        about="Show the settings of a consumer group on each broker.",
        example="getConsumerConfig -n 127.0.0.1:9876 -g OrderService",
        options=(_GROUP,),
        ask=_consumer_config,
        show=_show_consumer_config,
    ),
    AdminCommand(
        name="setConsumeMode",
        about="Set whether a consumer group pulls or pops messages of a topic.",
        example="setConsumeMode -n 127.0.0.1:9876 -c DefaultCluster -t Orders -g OrderService -m POP",
        options=(
            *EITHER,
            required("t", "topicName", "topic"),
            _GROUP,
            required("m", "mode", "PULL or POP"),
            value("q", "popShareQueueNum", "queues that members share (default: 0, all)"),
        ),
        ask=_set_consume_mode,
        show=_show_mode_change,
    ),
)
