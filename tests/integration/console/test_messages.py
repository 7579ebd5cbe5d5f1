"""Lists of messages and single messages: contents, bounds, ids of every kind, and brokers that are away."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kourou import AsyncProducer, ConsumeResult, Message, MessageExt
from kourou.admin.messages.message_pages import QueueRange
from kourou.console.message_cursor import encode_cursor
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import RequestCode
from kourou.protocol.message_id import encode_host, offset_msg_id
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.client.kit.push_kit import call, make_topic, until
from tests.integration.admin.dead_broker import register_dead_broker
from tests.integration.admin.messages.test_redrive import consumer
from tests.integration.console.kit import Console, console_of

TOPIC = "Orders"
MARKUP = "<script>alert(1)</script>\x07\u202e"


async def send(running: Cluster, *messages: Message, **options: Any) -> list[str]:
    async with AsyncProducer("shop", namesrv=running.namesrv_addr, **options) as producer:
        return [(await producer.send(message)).msg_id for message in messages]


def _cursor_of_many_queues() -> str | None:
    """Small as text; each queue would be a request to a broker."""
    rest = QueueRange(0, 1)
    position = {MessageQueue(TOPIC, "broker-a", number): rest for number in range(20_000)}
    return encode_cursor(TOPIC, position, is_newest_first=True)


async def send_numbered(running: Cluster, count: int, topic: str = TOPIC, **options: Any) -> list[str]:
    return await send(
        running, *(Message(topic, b"%d" % number, keys=[f"k{number}"]) for number in range(count)), **options
    )


async def all_pages(console: Console, **query: Any) -> tuple[list[dict[str, Any]], int]:
    """The items of all pages, and how many pages there are."""
    items: list[dict[str, Any]] = []
    page = await console.get("/messages", **query)
    pages = 1
    while True:
        items += page["items"]
        if page["next"] is None:
            return items, pages
        page = await console.get("/messages", **query, cursor=page["next"])
        pages += 1


async def delete_oldest(running: Cluster) -> int:
    """Let the first files of the log expire; where queue 0 of the topic begins then."""
    store = running.broker.services.store
    while not store.min_offset_in_queue(TOPIC, 0):  # files that are not flushed yet are not deleted
        for log_file in store.log.log_files:
            os.utime(log_file.path, (0, 0))
        assert (await call(running, RequestCode.DELETE_EXPIRED_COMMITLOG)).code == 0
    return store.min_offset_in_queue(TOPIC, 0)


@pytest.mark.parametrize("order", ["newest", "oldest"])
async def test_pages_have_every_message_once_while_others_are_sent(
    running: Cluster, console: Console, order: str
) -> None:
    await make_topic(running, TOPIC, queues=3)
    await send_numbered(running, 50)
    first = await console.get("/messages", topic=TOPIC, order=order, limit=7)
    await send(running, *(Message(TOPIC, b"later") for _ in range(20)))
    items = list(first["items"])
    page = first
    while page["next"] is not None:
        page = await console.get("/messages", topic=TOPIC, order=order, limit=7, cursor=page["next"])
        assert len(page["items"]) <= 7
        items += page["items"]
    bodies = [int(item["body_start"]) for item in items]
    assert sorted(bodies) == list(range(50))
    times = [item["store_timestamp"] for item in items]
    assert times == sorted(times, reverse=order == "newest")
    assert first["is_complete"] and first["problems"] == [] and first["stopped_by"] == ""
    assert first["commands"] == [f"mqadmin printMsg -n {running.namesrv_addr} -t Orders"]


async def test_a_page_says_what_was_read_of_each_queue(running: Cluster, console: Console) -> None:
    await make_topic(running, TOPIC, queues=1)
    await send_numbered(running, 12)
    page = await console.get("/messages", topic=TOPIC, order="oldest", limit=5)
    read = {
        (queue["broker_name"], queue["from_offset"], queue["to_offset"], queue["left"])
        for queue in page["queues"]
    }
    assert {name for name, *_ in read} == {"broker-a", "broker-b"}
    assert sum(end - begin for _, begin, end, _ in read) == 5
    assert sum(left for *_, left in read) == 7


async def test_by_time(running: Cluster, console: Console) -> None:
    await make_topic(running, TOPIC, queues=2)
    await send_numbered(running, 10)
    items, _ = await all_pages(console, topic=TOPIC, order="oldest")
    begin, end = items[3]["store_timestamp"], items[8]["store_timestamp"]
    wanted = [item["msg_id"] for item in items if begin <= item["store_timestamp"] < end]
    found, _ = await all_pages(console, topic=TOPIC, order="oldest", begin=begin, end=end)
    assert [item["msg_id"] for item in found] == wanted
    later, _ = await all_pages(console, topic=TOPIC, begin=items[-1]["store_timestamp"] + 1)
    assert later == []
    up_to_now, _ = await all_pages(console, topic=TOPIC, end=items[-1]["store_timestamp"] + 1)
    assert len(up_to_now) == 10


async def test_by_tag_queue_and_offset(running: Cluster, console: Console) -> None:
    await make_topic(running, TOPIC, queues=1)
    await send(
        running,
        *(
            Message(TOPIC, b"%d" % number, tags="red" if number % 10 == 0 else "blue", keys=[f"k{number}"])
            for number in range(200)
        ),
    )
    red, _ = await all_pages(console, topic=TOPIC, tag="red")
    assert [item["tags"] for item in red] == ["red"] * 20
    here, _ = await all_pages(console, topic=TOPIC, broker="broker-a", queue=0)
    assert len(here) == 100 and {item["broker_name"] for item in here} == {"broker-a"}
    page = await console.get(
        "/messages", topic=TOPIC, broker="broker-a", queue=0, offset=90, order="oldest", limit=50
    )
    assert [item["queue_offset"] for item in page["items"]] == list(range(90, 100))
    assert page["commands"] == [
        f"mqadmin consumeMessage -n {running.namesrv_addr} -t Orders -b broker-a -i 0 -o 90 -c 50"
    ]
    back = await console.get("/messages", topic=TOPIC, broker="broker-a", queue=0, offset=9)
    assert [item["queue_offset"] for item in back["items"]] == list(range(9, -1, -1))
    beyond = await console.get("/messages", topic=TOPIC, broker="broker-a", queue=0, offset=100)
    assert beyond["problems"] == ["queue 0 of broker-a: offset 100 does not exist yet, the queue ends at 100"]


async def test_a_topic_without_messages_and_one_that_does_not_exist(
    running: Cluster, console: Console
) -> None:
    await make_topic(running, "Empty")
    page = await console.get("/messages", topic="Empty")
    assert (page["items"], page["next"], page["is_complete"]) == ([], None, True)
    error = (await console.get("/messages", status=404, topic="None"))["error"]
    assert error["code"] == "not_found" and "CODE" not in error["message"] and error["hint"]
    assert (await console.get("/messages/by-key", status=404, topic="None", key="k"))["error"]


async def test_a_queue_that_does_not_exist(running: Cluster, console: Console) -> None:
    await make_topic(running, "Empty")
    absent: list[tuple[dict[str, Any], str]] = [
        ({"broker": "broker-a", "queue": 77}, "queue 77 on broker broker-a"),
        ({"broker": "broker-z"}, "queue on broker broker-z"),
        ({"queue": 77}, "queue 77"),
    ]
    for query, missing in absent:
        error = (await console.get("/messages", status=404, topic="Empty", **query))["error"]
        assert error["message"] == f"topic Empty has no {missing}"


async def test_bad_lists_are_refused(running: Cluster, console: Console) -> None:
    await make_topic(running, "Empty")
    refused: list[tuple[dict[str, Any], str]] = [
        ({"cursor": "rubbish"}, "cursor"),
        ({"cursor": encode_cursor("Other", {}, is_newest_first=True)}, "cursor"),
        ({"cursor": _cursor_of_many_queues()}, "cursor"),
        ({"order": "sideways"}, "order"),
        ({"limit": 1_000_000}, "limit"),
        ({"offset": 5}, "offset"),
        ({"tag": "||"}, "||"),
    ]
    for query, named in refused:
        answer = await console.get("/messages", status=400, topic="Empty", **query)
        assert named in answer["error"]["message"]
    assert "topic" in (await console.get("/messages", status=400))["error"]["message"]


async def test_by_key(running: Cluster, console: Console) -> None:
    await make_topic(running, TOPIC)
    await send(running, *(Message(TOPIC, b"%d" % number, keys=["same"]) for number in range(3)))
    found = await console.get("/messages/by-key", topic=TOPIC, key="same")
    assert sorted(item["body_start"] for item in found["items"]) == ["0", "1", "2"]
    assert (await console.get("/messages/by-key", topic=TOPIC, key="other"))["items"] == []


async def test_a_message_by_each_kind_of_id(running: Cluster, console: Console) -> None:
    await make_topic(running, TOPIC, queues=1)
    await send_numbered(running, 6)
    items, _ = await all_pages(console, topic=TOPIC, broker="broker-a", order="oldest")
    row = items[1]
    position = f"broker-a:0:{row['queue_offset']}"
    for msg_id in (row["msg_id"], row["offset_msg_id"], position):
        found = await console.get(f"/messages/{TOPIC}/{msg_id}")
        assert found["message"]["msg_id"] == row["msg_id"]
        assert found["message"]["broker_name"] == "broker-a"
        assert (found["previous_offset"], found["next_offset"]) == (0, 2)
    first = await console.get(f"/messages/{TOPIC}/broker-a:0:0")
    last = await console.get(f"/messages/{TOPIC}/broker-a:0:2")
    assert first["previous_offset"] is None and last["next_offset"] is None
    for missing in ("broker-a:0:3", "broker-x:0:0", "7F0000010000000000000000000000FF"):
        await console.get(f"/messages/{TOPIC}/{missing}", status=404)


async def test_an_offset_id_leads_to_registered_brokers_only(running: Cluster, console: Console) -> None:
    await make_topic(running, TOPIC)
    foreign = offset_msg_id(encode_host("10.255.255.1", 22), 0)
    answer = await console.get(f"/messages/{TOPIC}/{foreign}", status=404)
    assert "names broker 10.255.255.1:22, which is not registered" in answer["error"]["message"]


async def test_a_record_of_another_topic_is_not_shown(running: Cluster, console: Console) -> None:
    await make_topic(running, TOPIC)
    await make_topic(running, "Other")
    await send_numbered(running, 1)
    items, _ = await all_pages(console, topic=TOPIC)
    answer = await console.get(f"/messages/Other/{items[0]['offset_msg_id']}", status=404)
    assert "belongs to topic Orders" in answer["error"]["message"]


async def test_bodies_of_every_kind(running: Cluster, console: Console) -> None:
    await make_topic(running, TOPIC, queues=1)
    large = bytes(range(256)) * (4 * 1024 * 4 - 16)  # nearly 4 MiB
    umlauts = "ä".encode() * 40_000  # an odd cut after 64 KiB, behind one byte
    bodies = {
        "binary": bytes(range(256)),
        "json": b'{"a": 12345678901234567890, "b": [1]}',
        "text": MARKUP.replace("\x07", "").encode(),
        "control": MARKUP.encode(),
        "large": large,
        "cut": b"x" + umlauts,
        "compressed": b"0123456789" * 1_000,
    }
    plain = {name: Message(TOPIC, body, keys=[name]) for name, body in bodies.items() if name != "compressed"}
    await send(running, *plain.values(), compress_over_bytes=5 * 1024 * 1024)
    packed = Message(
        TOPIC, bodies["compressed"], keys=["compressed"], properties={"note": MARKUP.strip("\x07")}
    )
    await send(running, packed, compress_over_bytes=100)
    kinds = {}
    for name, body in bodies.items():
        (row,) = (await console.get("/messages/by-key", topic=TOPIC, key=name))["items"]
        assert row["body_size"] == len(body)
        found = await console.get(f"/messages/{TOPIC}/{row['msg_id']}")
        info = found["body"]
        assert info["size"] == len(body)
        assert info["is_truncated"] is (len(body) > 64 * 1024)
        assert base64.b64decode(found["message"]["body"]) == body[: 64 * 1024]
        assert (info["compression"], "COMPRESSED" in found["flags"]) == (
            ("ZLIB", True) if name == "compressed" else (None, False)
        )
        kinds[name] = info["kind"]
        answer = await console.http.get(f"/api/messages/{TOPIC}/{row['msg_id']}/body")
        assert answer.content == body
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"] == f'attachment; filename="Orders-{row["msg_id"]}.bin"'
    assert kinds == {
        "binary": "binary",
        "json": "json",
        "text": "text",
        "control": "binary",
        "large": "binary",
        "cut": "text",
        "compressed": "text",
    }


async def test_markup_is_data(running: Cluster, console: Console) -> None:
    await make_topic(running, TOPIC)
    (msg_id,) = await send(
        running, Message(TOPIC, MARKUP.encode(), tags="<b>", keys=["<i>"], properties={"<x>": "<y>"})
    )
    answer = await console.http.get(f"/api/messages/{TOPIC}/{msg_id}")
    assert answer.headers["content-type"] == "application/json"
    message = answer.json()["message"]
    assert (message["tags"], message["keys"], message["properties"]["<x>"]) == ("<b>", "<i>", "<y>")
    # Names of the path come back as data, too.
    answer = await console.http.get("/api/messages/%3Cscript%3E/1")
    assert answer.status_code in (400, 404) and answer.headers["content-type"] == "application/json"


async def test_messages_of_a_batch_are_single_ones(running: Cluster, console: Console) -> None:
    await make_topic(running, TOPIC, queues=1)
    async with AsyncProducer("shop", namesrv=running.namesrv_addr) as producer:
        await producer.send_many([Message(TOPIC, b"%d" % number, keys=[f"b{number}"]) for number in range(5)])
    items, _ = await all_pages(console, topic=TOPIC, order="oldest")
    assert [item["body_start"] for item in items] == ["0", "1", "2", "3", "4"]
    for item in items:
        place = f"{item['broker_name']}:{item['queue_id']}:{item['queue_offset']}"
        found = await console.get(f"/messages/{TOPIC}/{place}")
        assert found["message"]["keys"] == item["keys"]


async def test_a_broker_that_is_away_is_named_and_the_others_are_shown(
    running: Cluster, console: Console
) -> None:
    await make_topic(running, TOPIC, queues=1)
    await send_numbered(running, 20)
    await register_dead_broker(running, TOPIC)
    page = await console.get("/messages", topic=TOPIC)
    assert len(page["items"]) == 20
    assert not page["is_complete"]
    (problem,) = page["problems"]
    assert problem.startswith("broker broker-dead: ")
    assert page["next"] is not None  # it is tried again


async def test_a_broker_that_goes_away_between_pages(running: Cluster, console: Console) -> None:
    await make_topic(running, TOPIC, queues=1)
    await send_numbered(running, 20)
    page = await console.get("/messages", topic=TOPIC, order="oldest", limit=4)
    await running.brokers[1].stop()
    seen = page["items"]
    while True:
        page = await console.get("/messages", topic=TOPIC, order="oldest", limit=4, cursor=page["next"])
        assert not page["is_complete"]
        assert [problem.partition(":")[0] for problem in page["problems"]] == ["broker broker-b"]
        if not page["items"]:
            break
        seen += page["items"]
    assert len([item for item in seen if item["broker_name"] == "broker-a"]) == 10
    left = {queue["broker_name"]: queue["left"] for queue in page["queues"]}
    assert left["broker-b"] == 10 - len([item for item in seen if item["broker_name"] == "broker-b"])
    assert page["next"] is not None


async def test_a_range_that_was_deleted(tmp_path: Path) -> None:
    small: dict[str, Any] = {"mapped_file_size_commit_log": 64 * 1024, "max_message_size": 16 * 1024}
    async with (
        cluster(tmp_path / "cluster", **small) as running,
        console_of(running.namesrv_addr, tmp_path) as console,
    ):
        await make_topic(running, TOPIC, queues=1)
        await send(running, *(Message(TOPIC, b"x" * 4_000) for _ in range(60)), compress_over_bytes=1 << 20)
        first = await console.get("/messages", topic=TOPIC, order="oldest", limit=2)
        assert [item["queue_offset"] for item in first["items"]] == [0, 1]
        low = await delete_oldest(running)
        page = await console.get("/messages", topic=TOPIC, order="oldest", limit=2, cursor=first["next"])
        assert page["items"][0]["queue_offset"] == low
        assert page["problems"] == [f"queue 0 of broker-a: offsets 2 to {low - 1} are deleted"]
        assert not page["is_complete"]
        page = await console.get(
            "/messages", topic=TOPIC, broker="broker-a", queue=0, offset=3, order="oldest"
        )
        assert page["problems"] == [f"queue 0 of broker-a: offset 3 is deleted, the queue begins at {low}"]
        answer = await console.get(f"/messages/{TOPIC}/broker-a:0:3", status=404)
        assert "no message at offset 3" in answer["error"]["message"]


async def test_groups_and_delivery_to_a_client(running: Cluster, console: Console) -> None:
    await make_topic(running, TOPIC, queues=1)
    seen: list[MessageExt] = []

    async def fails_from_the_third_on(message: MessageExt) -> ConsumeResult:
        seen.append(message)
        return ConsumeResult.SUCCESS if len(seen) < 3 else ConsumeResult.LATER

    async with consumer(running, fails_from_the_third_on) as member:
        (msg_id,) = await send(running, Message(TOPIC, b"order 1"))
        await until(lambda: seen)
        await until(lambda: member.stats().in_hand == 0)
        path = f"/messages/{TOPIC}/{msg_id}"
        while True:
            (group,) = (await console.get(f"{path}/groups"))["items"]
            if group["track"]["track_type"] == "CONSUMED":
                break
        assert group["track"]["consumer_group"] == "billing"
        (client_id,) = group["clients"]
        body = {"group": "billing", "client_id": client_id}
        preview = await console.preview("POST", f"{path}/deliver", body)
        assert f"to client {client_id} of group billing" in preview["effects"][0]
        assert len(seen) == 1
        done = await console.change("POST", f"{path}/deliver", body, plan=preview["plan"])
        assert done["outcomes"] == [{"target": client_id, "is_done": True, "problem": ""}]
        assert done["result"]["consumeResult"] == "CR_SUCCESS"
        assert [message.body for message in seen] == [b"order 1", b"order 1"]
        done = await console.change("POST", f"{path}/deliver", body, status=502)
        assert done["outcomes"][0]["problem"].startswith("CR_LATER")
        assert [record["outcome"] for record in (await console.get("/audit"))["items"]] == ["failed", "done"]
        other = await console.change("POST", f"{path}/deliver", {**body, "client_id": "nobody"}, status=400)
        assert client_id in other["error"]["message"]
    gone = await console.change("POST", f"{path}/deliver", body, status=400)
    assert "no client of group billing is online" in gone["error"]["message"]


async def test_a_copy(running: Cluster, console: Console) -> None:
    await make_topic(running, TOPIC, queues=1)
    await make_topic(running, "Other", queues=1)
    (msg_id,) = await send(running, Message(TOPIC, b"order", keys=["k"], properties={"colour": "red"}))
    preview = await console.preview("POST", f"/messages/{TOPIC}/{msg_id}/copy", {"topic": "Other"})
    assert preview["effects"][0].startswith(f"Sends a copy of message {msg_id} to topic Other")
    assert (await console.get("/messages", topic="Other"))["items"] == []
    done = await console.change("POST", f"/messages/{TOPIC}/{msg_id}/copy", {"topic": "Other"})
    (copy,) = (await console.get("/messages", topic="Other"))["items"]
    assert (copy["keys"], copy["body_start"], copy["msg_id"]) == ("k", "order", done["result"]["msg_id"])
    for refused in ("%DLQ%billing", "SCHEDULE_TOPIC_XXXX"):
        await console.change("POST", f"/messages/{TOPIC}/{msg_id}/copy", {"topic": refused}, status=400)
    audit = json.loads(console.context.settings.audit_file.read_text().splitlines()[0])
    assert audit["operation"] == "post_messages_topic_id_copy"
