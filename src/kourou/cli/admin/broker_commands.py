"""Commands about brokers: their state and their configuration.

Not here: operations on brokers (maintenance_commands.py), read settings of 5.x (broker_reading.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Final

from kourou.admin.brokers import (
    BrokerConsumeStats,
    BrokerEpochs,
    BrokerRuntime,
    HaStatus,
    broker_configs,
    broker_consume_stats,
    broker_epochs,
    broker_runtimes,
    ha_statuses,
    update_broker_config,
)
from kourou.admin.clusters import prober, timed_send
from kourou.admin.targets import ConfigUpdate, brokers_of
from kourou.cli.admin.broker_reading import BROKER_READING_COMMANDS
from kourou.cli.admin.command import AdminCommand, Call, interval_of
from kourou.cli.admin.failover_commands import FAILOVER_COMMANDS
from kourou.cli.admin.formatting import format_time, human_time, send_result
from kourou.cli.admin.maintenance_commands import MAINTENANCE_COMMANDS
from kourou.cli.admin.options import one_of, required, value
from kourou.cli.admin.screen import Screen
from kourou.cli.admin.target_options import (
    BROKER_OR_CLUSTER,
    EITHER,
    Replica,
    chosen_brokers,
    chosen_masters,
    chosen_replicas,
    show_outcomes,
    show_update_notes,
)
from kourou.cli.problems import UsageError
from kourou.client.producer.send_result import SendResult, SendStatus
from kourou.protocol.bodies import HAClientRuntimeInfo, HARuntimeInfo, MessageQueue
from kourou.protocol.message import Message

_PROBE_GROUP: Final = "PID_SMSC"
_PROBE_PHRASE: Final = b"hello kourou "


# -- brokerStatus ------------------------------------------------------------------------------------


async def _broker_status(call: Call) -> list[BrokerRuntime]:
    return await broker_runtimes(call.admin, await chosen_brokers(call))


def _show_broker_status(brokers: list[BrokerRuntime], screen: Screen) -> None:
    is_cluster = "clusterName" in screen.args
    for broker in brokers:
        for name in sorted(broker.table):
            address = f"{broker.address:<24} " if is_cluster else ""
            screen.line(f"{address}{name:<32}: {broker.table[name]}")
        if broker.problem:
            screen.trouble(broker.problem)


# -- getBrokerConfig, updateBrokerConfig -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _BrokerConfig:
    """The configuration of one broker."""

    broker: Replica
    config: dict[str, str]
    problem: str


async def _broker_config(call: Call) -> list[_BrokerConfig]:
    replicas = await chosen_replicas(call)
    configs = await broker_configs(call.admin, [replica.address for replica in replicas])
    return [
        _BrokerConfig(replica, config.config, config.problem)
        for replica, config in zip(replicas, configs, strict=True)
    ]


def _show_broker_config(configs: list[_BrokerConfig], screen: Screen) -> None:
    for config in configs:
        if config.problem:
            screen.trouble(config.problem)
            continue
        screen.head(config.broker.head)
        if not config.config:
            screen.line(f"Broker[{config.broker.address}] has no config property!")
            continue
        for key in sorted(config.config):
            screen.line(f"{key:<50}=  {config.config[key]}")
        screen.line()


async def _update_config(call: Call) -> list[ConfigUpdate]:
    with_slaves = "updateAllBroker" in call.args
    addresses = await (chosen_brokers(call) if with_slaves else chosen_masters(call))
    return await update_broker_config(call.admin, addresses, call.args.text("key"), call.args.text("value"))


def _show_config_update(updates: list[ConfigUpdate], screen: Screen) -> None:
    show_outcomes(updates, screen, lambda address: f"update broker config success, {address}")
    show_update_notes(updates, screen)


# -- brokerConsumeStats ------------------------------------------------------------------------------


async def _consume_stats(call: Call) -> BrokerConsumeStats:
    stats = await broker_consume_stats(
        call.admin,
        await call.admin.broker_address(call.args.text("brokerAddr")),
        is_order=call.args.truth("order"),
        timeout_ms=call.args.number("timeoutMillis", 50_000),
    )
    level = call.args.number("level")
    return replace(stats, queues=[queue for queue in stats.queues if queue.diff >= level])


def _show_consume_stats(stats: BrokerConsumeStats, screen: Screen) -> None:
    screen.table(
        "{:<64}  {:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {:<20}  {}",
        (
            "#Topic",
            "#Group",
            "#Broker Name",
            "#QID",
            "#Broker Offset",
            "#Consumer Offset",
            "#Diff",
            "#LastTime",
        ),
        (
            (
                queue.topic[:64],
                queue.group[:64],
                queue.broker_name[:32],
                queue.queue_id,
                queue.broker_offset,
                queue.consumer_offset,
                queue.diff,
                format_time(queue.last_timestamp),
            )
            for queue in stats.queues
            if queue.last_timestamp > 0
        ),
    )
    screen.line()
    screen.line(f"Diff Total: {stats.total_diff}")


# -- haStatus ----------------------------------------------------------------------------------------


async def _ha_status(call: Call) -> list[HaStatus]:
    return await ha_statuses(call.admin, await chosen_masters(call))


def _show_ha_status(brokers: list[HaStatus], screen: Screen) -> None:
    for broker in brokers:
        if broker.status is None:
            screen.trouble(broker.problem)
        elif broker.status.master:
            _show_master(broker.address, broker.status, screen)
        else:
            _show_slave(broker.status.ha_client_runtime_info, screen)


def _show_master(address: str, status: HARuntimeInfo, screen: Screen) -> None:
    slaves = status.ha_connection_info
    screen.line(f"\n#MasterAddr\t{address}")
    screen.line(f"#MasterCommitLogMaxOffset\t{status.master_commit_log_max_offset}")
    screen.line(f"#SlaveNum\t{len(slaves)}")
    screen.line(f"#InSyncSlaveNum\t{status.in_sync_slave_nums}")
    screen.table(
        "{:<32}  {:<16} {:>16} {:>16} {:>16} {:>16}",
        ("#SlaveAddr", "#SlaveAckOffset", "#Diff", "#TransferSpeed(KB/s)", "#Status", "#TransferFromWhere"),
        (
            (
                slave.addr or "null",
                slave.slave_ack_offset,
                slave.diff,
                f"{slave.transferred_byte_in_second / 1024:.2f}",
                "OK" if slave.in_sync else "Fall Behind",
                slave.transfer_from_where,
            )
            for slave in slaves
        ),
    )


def _show_slave(status: HAClientRuntimeInfo, screen: Screen) -> None:
    screen.line(f"\n#MasterAddr\t{status.master_addr or 'null'}")
    screen.line(f"#CommitLogMaxOffset\t{status.max_offset}")
    screen.line(f"#TransferSpeed(KB/s)\t{status.transferred_byte_in_second / 1024:.2f}")
    screen.line(f"#LastReadTime\t{human_time(status.last_read_timestamp)}")
    screen.line(f"#LastWriteTime\t{human_time(status.last_write_timestamp)}")
    screen.line(f"#MasterFlushOffset\t{status.master_flush_offset}")


# -- getBrokerEpoch ----------------------------------------------------------------------------------


async def _broker_epoch(call: Call) -> list[BrokerEpochs]:
    return await broker_epochs(call.admin, await _replicas_of(call))


async def _replicas_of(call: Call) -> list[str]:
    """A broker given by address; or all that have a name, or are in a cluster."""
    name = call.args.get("brokerName")
    if name is None:
        return [broker.address for broker in await brokers_of(call.admin, call.args.text("clusterName"))]
    found = [broker.address for broker in await call.admin.brokers() if broker.broker_name == name]
    return found or [await call.admin.broker_address(name)]


def _show_broker_epoch(brokers: list[BrokerEpochs], screen: Screen) -> None:
    screen.line()
    for broker in brokers:
        cache = broker.epochs
        if cache is None:
            screen.trouble(broker.problem)
            continue
        screen.line(f"\n#clusterName\t{cache.cluster_name}\n#brokerName\t{cache.broker_name}")
        screen.line(f"#brokerAddr\t{broker.address}\n#brokerId\t{cache.broker_id}")
        ends = [*(epoch.end_offset for epoch in cache.epoch_list[:-1]), cache.max_offset]
        for epoch, end in zip(cache.epoch_list, ends, strict=False):
            text = f"epoch={epoch.epoch}, startOffset={epoch.start_offset}, endOffset={end}"
            screen.line(f"#Epoch: EpochEntry{{{text}}}")


# -- sendMsgStatus -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Probe:
    """A message that was sent to measure the response time."""

    rt_ms: int
    status: str
    msg_id: str
    offset_msg_id: str
    queue: MessageQueue
    queue_offset: int


async def _send_probes(call: Call) -> AsyncIterator[_Probe]:
    count, size = call.args.number("count", 50), call.args.number("messageSize", 128)
    if count < 1 or size < 1:
        raise UsageError("-c and -s must be above 0")
    topic = await call.admin.broker_name(call.args.text("brokerName"))
    await call.admin.route(topic)  # A missing broker must not be created as a topic.
    body = (_PROBE_PHRASE * (size // len(_PROBE_PHRASE) + 1))[:size]
    async with prober(call.admin, _PROBE_GROUP) as producer:
        # The first one looks up the route and connects, and is not reported.
        await producer.send(Message(topic, _PROBE_PHRASE))
        for _ in range(count):
            rt_ms, result = await timed_send(producer, Message(topic, body))
            yield _Probe(
                round(rt_ms),
                result.status.name,
                result.msg_id,
                result.offset_msg_id,
                result.queue,
                result.queue_offset,
            )


def _show_probe(probe: _Probe, screen: Screen) -> None:
    result = SendResult(
        SendStatus[probe.status], probe.msg_id, probe.queue, probe.queue_offset, probe.offset_msg_id
    )
    screen.line(f"rt={probe.rt_ms}ms, SendResult={send_result(result, is_v4=screen.is_v4)}")


BROKER_COMMANDS: Final = (
    AdminCommand(
        name="brokerStatus",
        about="Show the runtime state of a broker or a whole cluster: totals, rates, disk, request queues.",
        example="brokerStatus -n 127.0.0.1:9876 -b 127.0.0.1:10911",
        options=BROKER_OR_CLUSTER,
        ask=_broker_status,
        show=_show_broker_status,
    ),
    AdminCommand(
        name="getBrokerConfig",
        about="Show the configuration that a broker is running with.",
        example="getBrokerConfig -n 127.0.0.1:9876 -b 127.0.0.1:10911",
        options=EITHER,
        ask=_broker_config,
        show=_show_broker_config,
    ),
    AdminCommand(
        name="updateBrokerConfig",
        about="Change one configuration key of a running broker.",
        example="updateBrokerConfig -n 127.0.0.1:9876 -b 127.0.0.1:10911 -k fileReservedTime -v 72",
        options=(
            *EITHER,
            required("k", "key", "configuration key"),
            required("v", "value", "new value"),
            value("a", "updateAllBroker", "with any value: slaves of the cluster as well"),
        ),
        ask=_update_config,
        show=_show_config_update,
    ),
    AdminCommand(
        name="brokerConsumeStats",
        about="Show the progress of all consumer groups on the queues of one broker.",
        example="brokerConsumeStats -n 127.0.0.1:9876 -b 127.0.0.1:10911 -l 1000",
        options=(
            required("b", "brokerAddr", "broker, as host:port or by its name"),
            value("t", "timeoutMillis", "milliseconds to wait for the response (default: 50000)"),
            value("l", "level", "only queues with a lag of at least so many messages (default: 0)"),
            value("o", "order", "true: only groups that consume in order"),
        ),
        ask=_consume_stats,
        show=_show_consume_stats,
    ),
    AdminCommand(
        name="haStatus",
        about="Show the replication state of a broker's slaves.",
        example="haStatus -n 127.0.0.1:9876 -b 127.0.0.1:10911",
        options=(*EITHER, value("i", "interval", "repeat after so many seconds, until interrupted")),
        ask=_ha_status,
        show=_show_ha_status,
        interval_s=interval_of("interval"),
    ),
    AdminCommand(
        name="getBrokerEpoch",
        about="Show which part of the log belongs to which start of a master, for a broker and its slaves.",
        example="getBrokerEpoch -n 127.0.0.1:9876 -b broker-a",
        options=(
            *one_of(
                value("b", "brokerName", "all brokers of this name, or one as host:port"),
                value("c", "clusterName", "all brokers of this cluster"),
            ),
            value("i", "interval", "repeat after so many seconds, until interrupted"),
        ),
        ask=_broker_epoch,
        show=_show_broker_epoch,
        interval_s=interval_of("interval"),
    ),
    AdminCommand(
        name="sendMsgStatus",
        about="Send messages to a broker and show how long each one takes.",
        example="sendMsgStatus -n 127.0.0.1:9876 -b broker-a -c 10",
        options=(
            required("b", "brokerName", "broker, by its name or as host:port"),
            value("s", "messageSize", "size of each message in bytes (default: 128)"),
            value("c", "count", "number of messages (default: 50)"),
        ),
        stream=_send_probes,
        show=_show_probe,
    ),
    *FAILOVER_COMMANDS,
    *MAINTENANCE_COMMANDS,
    *BROKER_READING_COMMANDS,
)
