"""How late delayed messages are: `python -m benchmarks.delay [--rate 10000] [--seconds 5]`.

A broker in a process of its own, a sender that keeps a rate of messages on delay level 1 (1 s). Read
afterwards: when each message was stored in SCHEDULE_TOPIC_XXXX, and when in its real topic. Late is
the difference less the delay; it must never be below 0.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from benchmarks._namesrv_load import Link, ServerProbe
from kourou.broker.controller import BrokerController
from kourou.config.broker import BrokerConfig
from kourou.protocol.codes import PullSysFlag, RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.message import MessageExt
from kourou.protocol.record import decode_records
from kourou.transport.client import RemotingClient

DELAY_MS = 1_000
TICK_S = 0.01
TOPIC = "DelayTest"


def serve(root: Path, flush: str, pipe: Connection) -> None:
    """A broker, until the other end of the pipe says stop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(root, flush, pipe))


async def _serve(root: Path, flush: str, pipe: Connection) -> None:
    config = BrokerConfig(
        broker_name="bench",
        broker_ip1="127.0.0.1",
        bind_address="127.0.0.1",
        listen_port=0,
        store_path_root_dir=str(root),
        flush_disk_type=flush,
    )
    async with BrokerController(config) as broker:
        pipe.send(broker.address)
        await asyncio.to_thread(pipe.recv)


def send_frames(count: int) -> list[bytes]:
    """Delayed messages, ready for the wire."""
    header = SendMessageRequestHeaderV2(
        producer_group="P",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties="UNIQ_KEY\x01%032d\x02DELAY\x011\x02WAIT\x01true\x02",
    )
    # All are of one length: only the number differs.
    command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, b"x" * 100)
    before, after = command.encode().split(b"%032d")
    frame = before + b"%032d" + after
    size = (len(frame) - 4 + 27).to_bytes(4, "big")
    header_size = (int.from_bytes(frame[4:8], "big") + 27).to_bytes(4, "big")
    return [size + header_size + frame[8:].replace(b"%032d", b"%032d" % n) for n in range(count)]


async def load(address: str, rate: int, seconds: float) -> int:
    """Send at `rate` over one connection; how many messages were stored."""
    loop = asyncio.get_running_loop()
    host, port = address.split(":")
    transport, link = await loop.create_connection(Link, host, int(port))
    frames = send_frames(int(rate * seconds))
    begin, number = loop.time(), 0
    while number < len(frames):
        wanted = min(len(frames), int((loop.time() - begin) * rate))
        link.send(frames[number:wanted], wanted - number)
        number = wanted
        await asyncio.sleep(TICK_S)
    await link.done()
    transport.close()
    if link.failures:
        print(f"({link.failures} answers say that the disk was too slow)", end=" ")
    return len(frames)


async def read_all(client: RemotingClient, address: str, topic: str, count: int) -> list[MessageExt]:
    """The first `count` messages of queue 0, waiting for those that are not there yet."""
    found: list[MessageExt] = []
    while len(found) < count:
        header = PullMessageRequestHeader(
            consumer_group="C",
            topic=topic,
            queue_id=0,
            queue_offset=len(found),
            max_msg_nums=1_000,
            sys_flag=int(PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION),
            commit_offset=0,
            suspend_timeout_millis=5_000,
            subscription="*",
            sub_version=0,
            kourou_large_pull=True,
        )
        answer = await client.call(address, RemotingCommand.request(RequestCode.PULL_MESSAGE, header), 15_000)
        found += decode_records(answer.body) if answer.code == 0 else []
    return found


async def measure(address: str, rate: int, seconds: float, probe: ServerProbe) -> None:
    """Load, read back, print."""
    client = RemotingClient()
    begin = time.monotonic()
    stored = await load(address, rate, seconds)
    seconds = time.monotonic() - begin
    delivered = await read_all(client, address, TOPIC, stored)
    origins = await read_all(client, address, "SCHEDULE_TOPIC_XXXX", stored)
    await client.stop()
    cpu_us = probe.cpu_seconds() * 1e6 / stored
    due = {message.properties["UNIQ_KEY"]: message.store_timestamp + DELAY_MS for message in origins}
    late = sorted(message.store_timestamp - due.pop(message.properties["UNIQ_KEY"]) for message in delivered)
    print(
        f"{stored} messages at {stored / seconds:.0f}/s: late by {late[len(late) // 2]} ms (median), "
        f"{late[len(late) * 99 // 100]} ms (99 %), {late[-1]} ms (worst); "
        f"early {sum(ms < 0 for ms in late)}, not delivered {len(due)}; "
        f"{cpu_us:.0f} µs of the broker's CPU for each, sent, delivered and read twice"
    )


def main() -> None:
    """Once for each flush mode."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    for flush in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.Process(
                target=serve, args=(Path(folder) / "store", flush, theirs), daemon=True
            )
            process.start()
            print(flush, end=": ", flush=True)
            probe = ServerProbe(process.pid or 0)
            asyncio.run(measure(ours.recv(), options.rate, options.seconds, probe))
            ours.send("stop")
            process.join()


if __name__ == "__main__":
    main()
