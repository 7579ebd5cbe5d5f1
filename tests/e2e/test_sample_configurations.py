"""conf/: what the samples start; two masters of which one is killed, and masters with slaves."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kourou import Message, MessageExt, Producer, PushConsumer, SendStatus
from kourou.admin.clusters import cluster_list
from kourou.admin.replication import read_replication, slave_lags
from kourou.admin.session import Admin
from kourou.client.core.credentials_sources import read_tools_file
from kourou.config import load_broker_config, load_namesrv_config
from kourou.standalone.following import wait_followed
from tests.e2e.server_process import ServerProcess

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CONF = Path(__file__).parents[2] / "conf"
MASTERS = CONF / "2m-noslave"
_BOOTED = re.compile(r"The broker\[(broker-[ab]), (127\.0\.0\.1:\d+)\] boot success\.")
_NAMESRV = re.compile(r"The Name Server boot success\..* address (\S+)")

Spawn = Callable[..., ServerProcess]


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    """Starts commands; what still runs at the end is killed."""
    started: list[ServerProcess] = []
    environ = {**os.environ, "HOME": str(tmp_path), "ROCKETMQ_HOME": str(tmp_path / "home")}

    def start(*arguments: str) -> ServerProcess:
        folder = tmp_path / f"process-{len(started)}"
        started.append(ServerProcess("kourou.cli.main", list(arguments), environ, folder))
        return started[-1]

    yield start
    for server in started:
        server.kill()


def start_namesrv(spawn: Spawn) -> str:
    server = spawn("namesrv", "-c", str(CONF / "namesrv.properties"), "--host", "127.0.0.1", "--port", "0")
    found = _NAMESRV.match(server.wait_first_line())
    assert found is not None, server.output
    return found[1]


def start_master(spawn: Spawn, name: str, namesrv: str, store: Path) -> ServerProcess:
    """A master as its file says, and booted."""
    server = start_broker(spawn, MASTERS / f"{name}.properties", namesrv, store)
    assert booted(server)[0] == name, server.output
    return server


def start_broker(spawn: Spawn, path: Path, namesrv: str, store: Path) -> ServerProcess:
    """A broker as its file says, but for what has to be the test's own: address and store."""
    return spawn(
        "broker", "-c", str(path), "-n", namesrv,
        "--host", "127.0.0.1", "--advertise", "127.0.0.1", "--port", "0", "--store", str(store / path.stem),
        "--set", "mappedFileSizeCommitLog=16777216",
    )  # fmt: skip


def booted(server: ServerProcess) -> tuple[str, str]:
    """Name and address in the line of a broker that serves."""
    found = _BOOTED.match(server.wait_first_line())
    assert found is not None, server.output
    return found[1], found[2]


def send(producer: Producer, first: int, count: int) -> Counter[str]:
    """How many messages each broker has taken."""
    results = [producer.send(Message("Orders", b"%d" % number)) for number in range(first, first + count)]
    assert all(result.is_ok for result in results)
    return Counter(result.queue.broker_name for result in results)


def test_producers_alternate_between_two_masters_and_go_on_when_one_is_killed(
    spawn: Spawn, tmp_path: Path
) -> None:
    namesrv = start_namesrv(spawn)
    masters = {name: start_master(spawn, name, namesrv, tmp_path) for name in ("broker-a", "broker-b")}
    seen: set[bytes] = set()

    def note(message: MessageExt) -> None:
        seen.add(message.body)

    with Producer("shop", namesrv=namesrv, retry_times=3, poll_namesrv_interval_ms=500) as producer:
        # The first send makes the topic on one of them; then the other gets it too.
        send_to_both(producer)
        taken = send(producer, 0, 40)
        assert taken["broker-a"] == taken["broker-b"] == 20
        masters["broker-a"].kill()
        assert send(producer, 40, 40)["broker-b"] == 40
        # What the dead one holds is there again when it is back.
        start_master(spawn, "broker-a", namesrv, tmp_path)
        with PushConsumer("billing", namesrv=namesrv, consume_from="first") as consumer:
            consumer.subscribe("Orders", note)
            wanted = {b"%d" % number for number in range(80)}
            wait_until(lambda: wanted <= seen)


def test_masters_with_slaves_start_from_the_sample_and_a_slave_has_what_was_acknowledged(
    spawn: Spawn, tmp_path: Path
) -> None:
    namesrv = start_namesrv(spawn)
    # All at once: a slave finds its master, whichever is first.
    servers = {
        path.stem: start_broker(spawn, path, namesrv, tmp_path) for path in (CONF / "2m-2s-sync").iterdir()
    }
    addresses = {stem: booted(server)[1] for stem, server in servers.items()}
    masters = {stem: address for stem, address in addresses.items() if not stem.endswith("-s")}
    assert not asyncio.run(wait_followed(masters.values(), 1, timeout_s=30))

    async def lags() -> dict[str, tuple[int | None, str]]:
        async with Admin(namesrv=namesrv) as admin:
            brokers = [(one.place, one.runtime) for one in await cluster_list(admin)]
            found = slave_lags(await read_replication(admin, brokers))
            return {slave.address: (slave.lag_bytes, slave.problem) for slave in found}

    with Producer("shop", namesrv=namesrv) as producer:
        for stem in masters:
            # The topic that every broker has under its own name.
            assert producer.send(Message(stem, b"one book")).status is SendStatus.SEND_OK
    assert asyncio.run(lags()) == {addresses[stem]: (0, "") for stem in ("broker-a-s", "broker-b-s")}


def send_to_both(producer: Producer) -> None:
    def has_both() -> bool:
        producer.send(Message("Orders", b"first"))
        return {queue.broker_name for queue in producer.queues("Orders")} == {"broker-a", "broker-b"}

    wait_until(has_both)


def wait_until(is_so: Callable[[], bool]) -> None:

    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("path", sorted(CONF.rglob("broker*")), ids=lambda path: path.name)
def test_a_broker_takes_the_sample_without_a_word(path: Path) -> None:
    config, notes = load_broker_config(path, environ={"HOME": "/home/user"})
    assert notes == []
    is_slave = path.stem.endswith("-s")
    is_sync = path.parent.name in ("2m-2s-sync", "failover")
    role = "SLAVE" if is_slave else "SYNC_MASTER" if is_sync else "ASYNC_MASTER"
    assert (config.broker_cluster_name, config.broker_id, config.broker_role, config.flush_disk_type) == (
        "DefaultCluster", int(is_slave), role, "ASYNC_FLUSH",
    )  # fmt: skip
    assert config.broker_name == path.stem.removesuffix("-s") or path.name == "broker.conf"
    assert config.has_failover == (path.parent.name == "failover")


@pytest.mark.parametrize("folder", ["2m-noslave", "2m-2s-async", "2m-2s-sync"])
def test_brokers_of_a_sample_differ_in_ports_and_store(folder: str) -> None:
    loaded = [load_broker_config(path)[0] for path in (CONF / folder).iterdir()]
    ports = [
        port
        for config in loaded
        for port in (config.listen_port, config.ha_listen_port, config.fast_listen_port)
    ]
    assert len(set(ports)) == len(ports)
    assert len({config.store_path_root_dir for config in loaded}) == len(loaded)


def test_the_other_samples_can_be_read(tmp_path: Path) -> None:
    config, notes = load_namesrv_config(CONF / "namesrv.properties", {})
    assert (config.listen_port, notes) == (9876, [])
    assert read_tools_file(CONF / "tools.yml") is None
    filled = tmp_path / "tools.yml"
    filled.write_text((CONF / "tools.yml").read_text().replace("\n#", "\n"))
    keys = read_tools_file(filled)
    assert keys is not None and (keys.access_key, keys.secret_key) == ("rocketmq2", "12345678")


@pytest.mark.parametrize("path", [path for path in CONF.rglob("*") if path.is_file()], ids=str)
def test_what_is_commented_out_is_a_setting_that_works(path: Path, tmp_path: Path) -> None:
    """A user uncomments it: no key may be mistyped there."""
    text = re.sub(r"^#(\w+=)", r"\1", path.read_text(), flags=re.M)
    copy = tmp_path / path.name
    copy.write_text(text)
    if path.name.startswith("broker"):
        assert load_broker_config(copy)[1] == []
    elif path.suffix == ".properties":
        assert load_namesrv_config(copy, {})[1] == []
