"""The advertised address of this machine."""

from __future__ import annotations

import socket

import pytest

from kourou.config import host


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", ""])
def test_a_wildcard_is_not_an_address_to_advertise(bind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "local_address", lambda: "10.0.0.1")
    assert host.advertised_address(bind) == "10.0.0.1"


def test_a_machine_without_a_network_is_reached_by_itself_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_socket(*_: object) -> socket.socket:
        raise OSError("no network")

    monkeypatch.setattr("socket.socket", no_socket)
    assert host.local_address() == "127.0.0.1"


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("10.0.0.1", False),
        ("h", False),
    ],
)
def test_loopback(address: str, loopback: bool) -> None:
    assert host.is_loopback(address) is loopback
