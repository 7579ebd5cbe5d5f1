"""Pid files: a server is found while it runs, and a stranger with its number is not taken for it."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from kourou.pidfile import pid_file, running_servers


def test_a_server_is_found_while_it_runs(tmp_path: Path) -> None:
    with pid_file(tmp_path, "namesrv", "0.0.0.0:9876") as path:
        assert path is not None and path.name == "namesrv-9876.pid"
        [server] = running_servers(tmp_path, "namesrv")
        assert (server.pid, server.address) == (os.getpid(), "0.0.0.0:9876")
        assert running_servers(tmp_path, "broker") == []
    assert not path.exists()
    assert running_servers(tmp_path, "namesrv") == []


def test_several_servers_of_one_user_have_a_file_each(tmp_path: Path) -> None:
    with (
        pid_file(tmp_path, "namesrv", "127.0.0.1:9876"),
        pid_file(tmp_path, "namesrv", "[::1]:9877"),
        pid_file(tmp_path, "namesrv", "10.0.0.1:9876") as same_port,
    ):
        assert same_port is not None and same_port.name == f"namesrv-9876-{os.getpid()}.pid"
        addresses = [server.address for server in running_servers(tmp_path, "namesrv")]
        assert sorted(addresses) == ["10.0.0.1:9876", "127.0.0.1:9876", "[::1]:9877"]


@pytest.mark.parametrize(
    "change",
    [{"started": "some-boot/1"}, {"started": ""}, {"pid": 2**22 + 1}],
    ids=["reused number", "no start time", "no such process"],
)
def test_a_stale_file_is_recognised_and_removed(tmp_path: Path, change: dict[str, object]) -> None:
    with pid_file(tmp_path, "namesrv", "0.0.0.0:9876") as path:
        assert path is not None
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
        assert running_servers(tmp_path, "namesrv") == []
        assert not path.exists()


@pytest.mark.parametrize("text", ["", "4711", "[]", '{"pid": 1}', '{"pid": "x"}', "\xff"])
def test_a_damaged_file_is_removed(tmp_path: Path, text: str) -> None:
    with pid_file(tmp_path, "namesrv", "0.0.0.0:9876") as path:
        assert path is not None
        path.write_bytes(text.encode("latin-1"))
        assert running_servers(tmp_path, "namesrv") == []
        assert not path.exists()


def test_a_stale_file_gives_its_name_to_a_new_server(tmp_path: Path) -> None:
    with pid_file(tmp_path, "namesrv", "0.0.0.0:9876") as path:
        assert path is not None
        stale = json.dumps({**json.loads(path.read_text()), "started": "long ago"})
    path.write_text(stale)
    with pid_file(tmp_path, "namesrv", "0.0.0.0:9876") as again:
        assert again == path


def test_on_the_way_out_only_our_own_file_is_removed(tmp_path: Path) -> None:
    with pid_file(tmp_path, "namesrv", "0.0.0.0:9876") as path:
        assert path is not None
        path.write_text("somebody else's")
    assert path.read_text() == "somebody else's"


def test_a_folder_that_cannot_be_written_does_not_stop_a_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING), pid_file(tmp_path / "file", "namesrv", "0.0.0.0:1") as path:
        assert path is None
    assert "mqshutdown will not find this server" in caplog.text
