"""ProducerManager: who produces under which group."""

from __future__ import annotations

from kourou.broker.groups.producers import CHANNEL_EXPIRED_MS, ProducerManager
from tests.unit.broker.tables_kit import make_channel


async def test_a_client_is_in_the_groups_of_its_heartbeats() -> None:
    producers = ProducerManager()
    channel = make_channel("c1", 1)
    producers.register("PG", channel)
    producers.register("CLIENT_INNER_PRODUCER", channel)
    assert producers.groups == {
        "PG": {channel.connection: channel},
        "CLIENT_INNER_PRODUCER": {channel.connection: channel},
    }
    assert producers.find_by_client_id("c1") is channel
    assert producers.find_by_client_id("c2") is None
    producers.connection_closed(channel.connection)
    assert producers.groups == {}
    assert producers.find_by_client_id("c1") is None


async def test_a_client_leaves_one_group_and_stays_in_the_other() -> None:
    producers = ProducerManager()
    channel = make_channel("c1", 1)
    producers.register("PG", channel)
    producers.register("PG2", channel)
    assert producers.unregister("PG", channel.connection)
    assert not producers.unregister("PG", channel.connection)
    assert set(producers.groups) == {"PG2"}
    assert producers.find_by_client_id("c1") is channel


async def test_a_client_that_came_back_is_found_when_its_old_connection_ends() -> None:
    producers = ProducerManager()
    old, new = make_channel("c1", 1), make_channel("c1", 2)
    producers.register("PG", old)
    producers.register("PG", new)
    producers.connection_closed(old.connection)
    assert producers.find_by_client_id("c1") is new


async def test_a_client_that_is_silent_too_long_is_forgotten() -> None:
    producers = ProducerManager()
    silent, alive = make_channel("c1", 1), make_channel("c2", 2)
    producers.register("PG", silent)
    producers.register("PG", alive)
    alive_again = make_channel("c2", 2, now_ms=1)
    alive_again.connection = alive.connection
    producers.register("PG", alive_again)
    producers.scan(CHANNEL_EXPIRED_MS)
    assert len(producers.groups["PG"]) == 2
    producers.scan(CHANNEL_EXPIRED_MS + 1)
    assert list(producers.groups["PG"].values()) == [alive]
    assert not silent.connection.closed, "another group of the client may be alive"


async def test_calls_go_to_all_clients_in_turn_that_can_be_reached() -> None:
    producers = ProducerManager()
    channels = [make_channel(f"c{port}", port) for port in range(3)]
    for channel in channels:
        producers.register("PG", channel)
    channels[1].connection.close("test")
    chosen = [producers.available_channel("PG") for _ in range(4)]
    assert set(chosen) == {channels[0], channels[2]}
    assert chosen[0] is not chosen[1]
    assert producers.available_channel("missing") is None
    wanted = chosen[0]
    assert wanted is not None
    for _ in range(3):
        assert producers.available_channel("PG", lambda each: each is wanted.connection) is wanted
    assert producers.available_channel("PG", lambda _: False) is None
