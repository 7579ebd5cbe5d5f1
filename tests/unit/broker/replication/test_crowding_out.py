"""Which connection loses its place at the port for slaves when one more arrives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kourou.broker.replication.replica_server import crowding_out


def links(*hosts: str, challenged: tuple[int, ...] = ()) -> list[Any]:
    """Connections in the order of their arrival."""
    return [
        SimpleNamespace(host=host, opened=float(number), challenge="c" if number in challenged else "")
        for number, host in enumerate(hosts)
    ]


def loser(*hosts: str, challenged: tuple[int, ...] = ()) -> int:
    """The number of the one that loses its place."""
    return int(crowding_out(links(*hosts, challenged=challenged)).opened)


def test_the_oldest_goes() -> None:
    assert loser("10.0.0.1", "10.0.0.1", "10.0.0.1") == 0
    assert loser("10.0.0.1", "10.0.0.2", "10.0.0.3") == 0


def test_where_most_come_from_pays_however_old_others_are() -> None:
    assert loser("10.0.0.7", "10.0.0.1", "10.0.0.1", "10.0.0.7", "10.0.0.1") == 1


def test_one_that_is_about_to_prove_itself_goes_last_of_its_address() -> None:
    assert loser("10.0.0.1", "10.0.0.1", "10.0.0.1", challenged=(0, 1)) == 2
    assert loser("10.0.0.1", "10.0.0.1", challenged=(0, 1)) == 0
    assert loser("10.0.0.1", "10.0.0.1", "10.0.0.7", challenged=(0, 1)) == 0, "not instead of others"


def test_addresses_of_one_ipv6_network_count_as_one() -> None:
    assert loser("2001:db8::7", "2001:db8:0:1::1", "2001:db8:0:1::2", "2001:db8:0:2::1") == 1
    assert loser("10.0.0.7", "fe80::1%eth0", "fe80::2%eth0") == 1
