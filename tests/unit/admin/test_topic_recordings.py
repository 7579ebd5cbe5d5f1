"""Commands about topics print what Apache's print for the same answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kourou.errors import ResponseError
from tests.golden.mqadmin import VERSIONS, Recording, recordings, run_replayed


@pytest.mark.parametrize(
    "name",
    [
        "topicRoute",
        "topicRoute-l",
        "topicRoute-wiped",
        "topicStatus",
        "topicClusterList",
        "updateTopic",
        "updateTopic-cluster",
        "updateTopicPerm",
        "updateOrderConf",
        "updateOrderConf-get",
        "updateOrderConf-delete",
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
async def test_the_same_text(version: str, name: str) -> None:
    recording = recordings(version)[name]
    assert await run_replayed(recording) == recording.stdout


@pytest.mark.parametrize("version", VERSIONS)
async def test_deleting_prints_the_same_text_after_asking_whether_the_topic_is_there(version: str) -> None:
    recording = recordings(version)["deleteTopic"]
    route = recordings(version)["topicRoute"].exchanges[0]
    route = replace(route, request=replace(route.request, ext_fields={}))  # of any topic
    recording = replace(recording, exchanges=(*recording.exchanges, route))
    assert await run_replayed(recording) == recording.stdout


@pytest.mark.parametrize("name", ["topicList", "topicList-c", "topicList-binary"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_the_same_lines_sorted(version: str, name: str) -> None:
    # Apache prints topics, and the groups of one, in the order of a hash table.
    recording = recordings(version)[name]
    ours = await run_replayed(recording)
    assert sorted(ours.splitlines()) == sorted(recording.stdout.splitlines())
    first = (
        [line.split()[1] for line in ours.splitlines()[1:]] if name == "topicList-c" else ours.splitlines()
    )
    assert first == sorted(first)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_topic_that_is_not_there(version: str) -> None:
    recording = recordings(version)["topicRoute-missing"]
    assert recording.stdout == ""
    with pytest.raises(
        ResponseError, match="CODE: 17  DESC: No topic route info in name server for the topic"
    ):
        await run_replayed(recording)


def _shares(text: str) -> dict[str, list[dict[str, Any]]]:
    shares: dict[str, list[dict[str, Any]]] = json.loads(text)["result"]
    return shares


def _counts(shares: dict[str, list[dict[str, Any]]]) -> dict[str, int]:
    return {client: len(queues) for client, queues in shares.items()}


def _queues(shares: dict[str, list[dict[str, Any]]]) -> list[tuple[str, int]]:
    return sorted((queue["brokerName"], queue["queueId"]) for queues in shares.values() for queue in queues)


@pytest.mark.parametrize("version", VERSIONS)
async def test_allocate_mq(version: str) -> None:
    # Apache hands out the queues in the order of a hash table; ours are sorted, as consumers really do it.
    recording: Recording = recordings(version)["allocateMQ"]
    text = await run_replayed(recording)
    ours, theirs = _shares(text), _shares(recording.stdout)
    assert _counts(ours) == _counts(theirs) and _queues(ours) == _queues(theirs)
    assert text == (
        '{"result":{"10.0.0.1":[{"brokerName":"broker-a","queueId":0,"topic":"OrderTopic"},'
        '{"brokerName":"broker-a","queueId":1,"topic":"OrderTopic"}],'
        '"10.0.0.2":[{"brokerName":"broker-a","queueId":2,"topic":"OrderTopic"}],'
        '"10.0.0.3":[{"brokerName":"broker-a","queueId":3,"topic":"OrderTopic"}]}}\n'
    )
