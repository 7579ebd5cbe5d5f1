"""Commands about broker sets that choose their master: Apache's commands for its controller.

Apache's need the address of a controller (-a). Of Kourou's sets every member has that role; without -a the
members are found through the name servers.
"""

from __future__ import annotations

from typing import Final

from kourou.admin.failover import (
    ControllerMetaData,
    ElectedMaster,
    any_member,
    controller_metadata,
    elect_master,
    registered_sets,
    sync_state_sets,
)
from kourou.admin.targets import brokers_of
from kourou.cli.admin.command import AdminCommand, Call, interval_of
from kourou.cli.admin.formatting import or_null, truth
from kourou.cli.admin.options import required, value
from kourou.cli.admin.screen import Screen
from kourou.cli.problems import UsageError
from kourou.protocol.bodies import ReplicaIdentity, ReplicasInfo

_CONTROLLER: Final = value(
    "a",
    "controllerAddress",
    "a member of the set, or Apache's controller (default: found by the name servers)",
)


def _controller(call: Call) -> str | None:
    """The first of the addresses, as in Apache's tools."""
    return call.args.text("controllerAddress").split(";")[0].strip() or None


# -- getSyncStateSet ---------------------------------------------------------------------------------


async def _sync_state_sets(call: Call) -> dict[str, ReplicasInfo]:
    controller = _controller(call)
    name, cluster = call.args.get("brokerName"), call.args.get("clusterName")
    if controller is None:
        return await registered_sets(call.admin, cluster=cluster if name is None else None, broker_name=name)
    if name is not None:
        return await sync_state_sets(call.admin, controller, [name])
    if cluster is None:
        raise UsageError("give a broker with -b name, or a cluster with -c name")
    names = {broker.broker_name for broker in await brokers_of(call.admin, cluster)}
    return await sync_state_sets(call.admin, controller, sorted(names))


def _show_sets(sets: dict[str, ReplicasInfo], screen: Screen) -> None:
    for name, info in sets.items():
        screen.line(f"\n#brokerName\t{name}\n#MasterBrokerId\t{or_null(info.master_broker_id)}")
        screen.line(f"#MasterAddr\t{or_null(info.master_address)}\n#MasterEpoch\t{info.master_epoch}")
        screen.line(f"#SyncStateSetEpoch\t{info.sync_state_set_epoch}")
        screen.line(f"#SyncStateSetNums\t{len(info.in_sync_replicas)}")
        for replica in info.in_sync_replicas:
            screen.line(f"\nInSyncReplica:\t{_identity(replica)}")
        for replica in info.not_in_sync_replicas:
            screen.line(f"\nNotInSyncReplica:\t{_identity(replica)}")


def _identity(replica: ReplicaIdentity) -> str:
    return (
        f"ReplicaIdentity{{brokerName='{replica.broker_name}', brokerId={or_null(replica.broker_id)}, "
        f"brokerAddress='{or_null(replica.broker_address)}', alive={truth(bool(replica.alive))}}}"
    )


# -- electMaster -------------------------------------------------------------------------------------


async def _elect(call: Call) -> ElectedMaster:
    name = call.args.text("brokerName")
    return await elect_master(
        call.admin,
        _controller(call) or await any_member(call.admin, name),
        cluster=call.args.text("clusterName"),
        broker_name=name,
        broker_id=call.args.number("brokerId"),
    )


def _show_elected(elected: ElectedMaster, screen: Screen) -> None:
    screen.line(f"\n#ClusterName\t{elected.cluster}\n#BrokerName\t{elected.broker_name}")
    screen.line(f"#BrokerMasterAddr\t{or_null(elected.master_address)}")
    screen.line(f"#MasterEpoch\t{or_null(elected.master_epoch)}")
    screen.line(f"#SyncStateSetEpoch\t{or_null(elected.sync_state_set_epoch)}")
    for broker_id, address in elected.brokers.items():
        screen.line(f"\t#Broker\t{broker_id}\t{address}")


# -- getControllerMetaData ---------------------------------------------------------------------------


async def _metadata(call: Call) -> ControllerMetaData:
    return await controller_metadata(call.admin, call.args.text("controllerAddress"))


def _show_metadata(found: ControllerMetaData, screen: Screen) -> None:
    screen.line(f"\n#ControllerGroup\t{or_null(found.group)}")
    screen.line(f"#ControllerLeaderId\t{or_null(found.leader_id)}")
    screen.line(f"#ControllerLeaderAddress\t{or_null(found.leader_address)}")
    for peer in found.peers:
        screen.line(f"#Peer:\t{peer}")


FAILOVER_COMMANDS: Final = (
    AdminCommand(
        name="getSyncStateSet",
        about="Show the master of a broker set, and which of its members are in sync.",
        example="getSyncStateSet -n 127.0.0.1:9876 -b broker-a",
        options=(
            _CONTROLLER,
            value("b", "brokerName", "only this broker set"),
            value("c", "clusterName", "all broker sets of this cluster"),
            value("i", "interval", "repeat after so many seconds, until interrupted"),
        ),
        ask=_sync_state_sets,
        show=_show_sets,
        interval_s=interval_of("interval"),
    ),
    AdminCommand(
        name="electMaster",
        about="Let a member of a broker set become its master; handover waits until it is.",
        example="electMaster -n 127.0.0.1:9876 -c DefaultCluster -bn broker-a -b 2",
        options=(
            _CONTROLLER,
            required("b", "brokerId", "number of the member, as getSyncStateSet shows it"),
            required("bn", "brokerName", "broker set"),
            required("c", "clusterName", "its cluster"),
        ),
        ask=_elect,
        show=_show_elected,
    ),
    AdminCommand(
        name="getControllerMetaData",
        about="Show the leader of a controller; of a broker set, its master and the members that are alive.",
        example="getControllerMetaData -a 127.0.0.1:10911",
        options=(required("a", "controllerAddress", "a member of the set, or Apache's controller"),),
        ask=_metadata,
        show=_show_metadata,
    ),
)
