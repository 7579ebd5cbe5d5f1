"""What mqadmin advises when a name, an address or the moment is wrong: the exact text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kourou import AsyncProducer, AsyncPullConsumer, Message
from kourou.config import NamesrvConfig
from kourou.embed import NameServer
from kourou.errors import NoNameServerError, NoRouteError
from kourou.testing.cluster import cluster
from tests.integration.admin.group_kit import GROUP, TOPIC, traffic, until
from tests.unit.admin.command_line import run_line

NO_ROUTE = "CODE: 17  DESC: No topic route info in name server for the topic:"


async def problem_of(namesrv: str, *words: str) -> str:
    """The line on stderr of a command that fails, without the name of the program."""
    return (await run_line(namesrv, *words)).problem.removeprefix("mqadmin ")


async def test_a_mistyped_name_is_reported_with_the_nearest(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        namesrv, broker = found.namesrv, found.broker_addr
        await found.line("updateSubGroup", "-c", "DefaultCluster", "-g", GROUP)

        async def problem(*words: str) -> str:
            return await problem_of(namesrv, *words)

        assert await problem("topicStatus", "-t", "Ordres") == (
            f"topicStatus: {NO_ROUTE} Ordres (from {namesrv}); did you mean topic Orders?"
        )
        assert await problem("topicStatus", "-t", "zzz") == (
            f"topicStatus: {NO_ROUTE} zzz (from {namesrv}); "
            "create it with updateTopic, or start the broker that has it"
        )
        assert await problem("consumerProgress", "-g", "biling") == (
            f"consumerProgress: {NO_ROUTE} %RETRY%biling (from {namesrv}); did you mean group billing?"
        )
        assert await problem("consumerProgress", "-g", "noone") == (
            f"consumerProgress: {NO_ROUTE} %RETRY%noone (from {namesrv}); no broker knows group noone"
        )
        assert await problem("resetOffsetByTime", "-g", "biling", "-t", TOPIC, "-s", "0") == (
            f"resetOffsetByTime: CODE: 26  DESC: Group biling does not exist (from {broker}); "
            "did you mean group billing?"
        )
        assert await problem("deleteTopic", "-c", "DefaultCluster", "-t", "Ordres") == (
            "deleteTopic: CODE: 17  DESC: topic [Ordres] does not exist in cluster [DefaultCluster]; "
            "did you mean topic Orders?"
        )
        assert await problem("deleteTopic", "-c", "DefaultClutser", "-t", "Orders") == (
            "deleteTopic: cluster [DefaultClutser] not exist. Make sure the specified clusterName exists or "
            "the name server connected to is correct; did you mean DefaultCluster?"
        )
        assert await problem("brokerStatus", "-b", "broker-q") == (
            "brokerStatus: broker broker-q: no master has that name, and it is not host:port; "
            "did you mean broker-a?"
        )


async def test_the_address_of_a_broker_is_no_name_server(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        broker, namesrv = running.broker.address, running.namesrv_addr
        advice = f"{broker} is broker broker-a, not a name server; its name server is {namesrv}"
        assert await problem_of(broker, "topicList") == f"topicList: {advice}"
        assert await problem_of(broker, "getNamesrvConfig") == f"getNamesrvConfig: {advice}"
        for words in (("getBrokerConfig", "-b", namesrv), ("updateTopic", "-t", "New", "-b", namesrv)):
            assert (await problem_of(namesrv, *words)).endswith(
                f" not supported (from {namesrv}); {namesrv} is a name server, not a broker; "
                f"its brokers are {broker}"
            )
        async with AsyncProducer("P", namesrv=broker) as producer:
            with pytest.raises(NoNameServerError, match=f"^{re.escape(advice)}$"):
                await producer.send(Message(TOPIC, b"x"))


async def test_without_brokers_the_advice_is_not_to_create_the_topic() -> None:
    async with NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0)) as namesrv:
        assert await problem_of(namesrv.address, "topicStatus", "-t", TOPIC) == (
            f"topicStatus: {NO_ROUTE} {TOPIC} (from {namesrv.address}); "
            "no broker is registered there: start one, or check its namesrvAddr"
        )
        async with AsyncProducer("P", namesrv=namesrv.address) as producer:
            with pytest.raises(NoRouteError) as caught:
                await producer.send(Message(TOPIC, b"x"))
        assert str(caught.value) == (
            f"no route to topic 'Orders': no broker is registered with the name server {namesrv.address}; "
            "start one, or check its namesrvAddr"
        )


async def test_the_client_suggests_the_topic_that_was_meant(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found, AsyncPullConsumer(GROUP, namesrv=found.namesrv) as consumer:
        for topic, hint in (("Ordres", " (did you mean Orders?)"), ("zzz", "")):
            with pytest.raises(NoRouteError) as caught:
                await consumer.fetch_queues(topic)
            assert str(caught.value) == (
                f"no route to topic '{topic}': the name server does not know it{hint}; "
                "create it with `kourou topic create`, or start the broker that has it"
            )


async def test_progress_before_the_first_commit_says_when_to_ask_again(tmp_path: Path) -> None:
    async with (
        traffic(tmp_path) as found,
        found.consumer(GROUP, persist_interval_ms=3_600_000),
    ):

        async def no_offset_yet() -> str | None:
            problem = (await found.line("consumerProgress", "-g", GROUP)).problem
            return problem if "committed" in problem else None

        assert await until(no_offset_yet) == (
            "mqadmin consumerProgress: CODE: 206  DESC: group billing has 1 member online and no committed "
            "offset yet: members commit their offsets every 5 s by default, so try again in a few seconds"
        )
