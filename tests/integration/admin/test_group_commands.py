"""Commands about consumer groups, against a running cluster."""

from __future__ import annotations

import json
from pathlib import Path

from kourou.admin.groups import group_configs
from kourou.admin.session import Admin
from kourou.protocol.bodies import GroupRetryPolicyType
from kourou.testing.cluster import cluster
from tests.integration.admin.group_kit import GROUP, TOPIC, add_ghost_broker, consumed
from tests.unit.admin.command_line import run_line


async def test_a_group_is_made_changed_read_and_deleted(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=2) as running:
        namesrv, (a, b) = running.namesrv_addr, (broker.address for broker in running.brokers)

        made = await run_line(namesrv, "updateSubGroup", "-c", "DefaultCluster", "-g", "CG", "-r", "3")
        assert made.lines[:2] == [
            f"create subscription group to {a} success.",
            f"create subscription group to {b} success.",
        ]
        assert made.lines[2].startswith("SubscriptionGroupConfig{groupName=CG, consumeEnable=true, ")
        assert not made.stdout.endswith("\n")

        changed = await run_line(
            namesrv, "updateSubGroup", "-b", "broker-b", "-g", "CG", "-s", "false", "-o", "true", "-p",
            '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":1,"max":9,"multiplier":2}}',
        )  # fmt: skip
        assert changed.lines[0] == f"create subscription group to {b} success."
        assert "type=EXPONENTIAL" in changed.stdout
        async with Admin(namesrv=namesrv) as admin:
            config = (await group_configs(admin, b))["CG"]
        assert not config.consume_enable and config.consume_message_orderly
        assert config.group_retry_policy.type is GroupRetryPolicyType.EXPONENTIAL

        found = await run_line(namesrv, "getConsumerConfig", "-g", "CG")
        heads = [line for line in found.lines if line.startswith("=")]
        assert heads == [
            f"{'=' * 29}DefaultCluster:broker-a{'=' * 29}",
            f"{'=' * 29}DefaultCluster:broker-b{'=' * 29}",
        ]
        assert f"{'retryMaxTimes':<40}=  3" in found.lines and f"{'retryMaxTimes':<40}=  16" in found.lines
        in_json = (await run_line(namesrv, "getConsumerConfig", "-g", "CG", "--json")).json
        assert [row["config"]["consumeEnable"] for row in in_json] == [True, False]

        deleted = await run_line(namesrv, "deleteSubGroup", "-c", "DefaultCluster", "-g", "CG", "-r", "true")
        assert deleted.lines == [
            f"delete subscription group [CG] from broker [{a}] in cluster [DefaultCluster] success.",
            f"delete subscription group [CG] from broker [{b}] in cluster [DefaultCluster] success.",
            "delete topic [%RETRY%CG] from cluster [DefaultCluster] success.",
            "delete topic [%RETRY%CG] from NameServer success.",
            "delete topic [%DLQ%CG] from cluster [DefaultCluster] success.",
            "delete topic [%DLQ%CG] from NameServer success.",
        ]
        gone = await run_line(namesrv, "getConsumerConfig", "-g", "CG")
        assert (
            gone.problem == "mqadmin getConsumerConfig: CODE: 26  DESC: Group CG does not exist on any broker"
        )


async def test_deleting_with_offsets_forgets_how_far_a_group_is(tmp_path: Path) -> None:
    async with consumed(tmp_path) as found:
        await found.line("updateSubGroup", "-b", "broker-a", "-g", "copy")
        await found.line("cloneGroupOffset", "-s", GROUP, "-d", "copy", "-t", TOPIC)
        assert await found.offset_of("copy") == 2
        deleted = await found.line("deleteSubGroup", "-b", "broker-a", "-g", "copy", "-r", "true")
        assert (
            deleted.stdout == f"delete subscription group [copy] from broker [{found.broker_addr}] success.\n"
        )
        assert await found.offset_of("copy") == 0  # what a broker answers without one


async def test_groups_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "groups.json"
    file.write_text(json.dumps([{"groupName": "A", "retryMaxTimes": 2}, {"groupName": "B"}]))
    async with cluster(tmp_path) as running:
        namesrv, address = running.namesrv_addr, running.broker.address
        one = await run_line(namesrv, "updateSubGroupList", "-b", address, "-f", str(file))
        assert one.lines == [
            f"submit batch of group config to {address} success, please check the result later."
        ]
        async with Admin(namesrv=namesrv) as admin:
            groups = await group_configs(admin, address)
        assert groups["A"].retry_max_times == 2 and "B" in groups
        all_of_them = await run_line(namesrv, "updateSubGroupList", "-c", "DefaultCluster", "-f", str(file))
        assert all_of_them.lines == [
            f"submit batch of subscription group config to {address} success, please check the result later."
        ]

        file.write_text('{"groupName": "A"}')
        wrong = await run_line(namesrv, "updateSubGroupList", "-b", address, "-f", str(file))
        assert str(file) in wrong.problem
        file.write_text('[{"group": "A"}]')
        nameless = await run_line(namesrv, "updateSubGroupList", "-b", address, "-f", str(file))
        assert nameless.problem.endswith(f"{file}: must be a list of objects, each with a groupName")
        missing = await run_line(namesrv, "updateSubGroupList", "-b", address, "-f", "nothing.json")
        assert missing.problem.endswith("the file path nothing.json does not exists")


async def test_bad_input_gives_one_line(tmp_path: Path) -> None:
    cases = [
        (("updateSubGroup", "-g", "CG"), "give a broker with -b"),
        (("updateSubGroup", "-c", "Nowhere", "-g", "CG"), "Make sure the specified clusterName exists"),
        (("updateSubGroup", "-b", "127.0.0.1:1", "-g", "CG"), "cannot connect to 127.0.0.1:1"),
        (("updateSubGroup", "-b", "broker-a", "-g", "C G"), "-g: group 'C G' contains ' '"),
        (("updateSubGroup", "-b", "broker-a", "-g", "CG", "-p", "nonsense"), "not a retry policy"),
        (("updateSubGroup", "-b", "broker-a", "-g", "CG", "-q", "many"), "-q many: must be a whole number"),
        (("deleteSubGroup", "-c", "Nowhere", "-g", "CG"), "Make sure the specified clusterName exists"),
        (("setConsumeMode", "-b", "broker-a", "-t", "T", "-g", "G", "-m", "PUSH"), "must be PULL or POP"),
        (("setConsumeMode", "-b", "broker-a", "-t", "T", "-g", "G", "-m", "POP"), "topic[T] not exist"),
    ]
    async with cluster(tmp_path) as running:
        for words, problem in cases:
            assert problem in (await run_line(running.namesrv_addr, *words)).problem


async def test_one_broker_of_two_is_down(tmp_path: Path) -> None:
    """Reports what succeeded and what failed."""
    async with cluster(tmp_path) as running:
        namesrv, address = running.namesrv_addr, running.broker.address
        ghost = await add_ghost_broker(running)
        made = await run_line(namesrv, "updateSubGroup", "-c", "DefaultCluster", "-g", "CG")
        assert made.lines[0] == f"create subscription group to {address} success."
        assert ghost in made.stderr and len(made.stderr.splitlines()) == 1
        found = await run_line(namesrv, "getConsumerConfig", "-g", "CG")
        assert f"{'groupName':<40}=  CG" in found.lines
        assert found.stderr.startswith(f"broker-z: cannot connect to {ghost}")
