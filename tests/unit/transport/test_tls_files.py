"""A context follows its files: renewed ones, links that are swapped, broken ones."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path

import pytest

from kourou.transport.settings import ClientTlsConfig, ServerTlsConfig
from kourou.transport.tls import follow_client, follow_server, throw_away_certificate
from kourou.transport.tls_files import FollowedContext


def write_pair(folder: Path, name: str = "server") -> None:
    """A certificate and its key in `folder`, as Kubernetes names them."""
    folder.mkdir(exist_ok=True)
    for file_name, content in zip(("tls.crt", "tls.key"), throw_away_certificate(name), strict=True):
        (folder / file_name).write_bytes(content)


def following(folder: Path) -> FollowedContext:
    config = ServerTlsConfig(cert_path=folder / "tls.crt", key_path=folder / "tls.key")
    return follow_server(config, "port 10911")


def test_unchanged_files_leave_the_context(tmp_path: Path) -> None:
    write_pair(tmp_path)
    followed = following(tmp_path)
    before = followed.context
    assert followed.has_files
    assert not followed.look()
    assert followed.context is before


def test_renewed_files_make_a_new_context(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    write_pair(tmp_path)
    followed = following(tmp_path)
    before = followed.context
    write_pair(tmp_path)
    assert followed.look()
    assert followed.context is not None and followed.context is not before
    assert "port 10911: TLS files have changed and are used" in caplog.text


def test_a_swapped_link_is_noticed(tmp_path: Path) -> None:
    """A mounted secret of Kubernetes: `tls.crt` → `..data/tls.crt`, `..data` → a folder for each version."""
    for version in ("v1", "v2"):
        write_pair(tmp_path / version)
    for file_name in ("tls.crt", "tls.key"):
        (tmp_path / file_name).symlink_to(Path("..data", file_name))
    (tmp_path / "..data").symlink_to("v1")
    followed = following(tmp_path)
    (tmp_path / "new").symlink_to("v2")
    (tmp_path / "new").rename(tmp_path / "..data")
    assert followed.look()


def test_a_copy_with_the_old_time_is_noticed(tmp_path: Path) -> None:
    write_pair(tmp_path)
    followed = following(tmp_path)
    times = [(path, path.stat()) for path in (tmp_path / "tls.crt", tmp_path / "tls.key")]
    write_pair(tmp_path / "new")
    for path, status in times:
        (tmp_path / "new" / path.name).rename(path)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert followed.look()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"-----BEGIN CERTIFICATE-----\nnone\n", "tls.crt: it is damaged"),
        (b"", "tls.crt: contains no certificate"),
        (throw_away_certificate("other")[0], "the key does not belong to the certificate"),
    ],
    ids=["damaged", "empty", "of another key"],
)
def test_a_broken_file_keeps_the_old_one_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, reason: str
) -> None:
    write_pair(tmp_path)
    followed = following(tmp_path)
    before = followed.context
    (tmp_path / "tls.crt").write_bytes(content)
    assert [followed.look() for _ in range(3)] == [False] * 3
    assert followed.context is before
    [record] = caplog.records
    assert reason in record.getMessage() and "the previous ones stay" in record.getMessage()
    write_pair(tmp_path)
    assert followed.look()
    assert followed.context is not before


def test_a_file_that_is_gone_keeps_the_old_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_pair(tmp_path)
    followed = following(tmp_path)
    (tmp_path / "tls.key").unlink()
    assert not followed.look() and not followed.look()
    assert followed.context is not None
    assert [record.getMessage().count("tls.key is not a file") for record in caplog.records] == [1]


def test_a_folder_that_is_closed_keeps_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that is not caught would end the server."""
    write_pair(tmp_path)
    followed = following(tmp_path)
    write_pair(tmp_path)

    def closed(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", closed)
    assert not followed.look() and not followed.look()
    assert followed.context is not None
    assert caplog.text.count("tls.crt: Permission denied") == 1


def test_trust_files_of_clients_are_followed(tmp_path: Path) -> None:
    write_pair(tmp_path)
    config = ClientTlsConfig(enable=True, auth_server=True, trust_cert_path=tmp_path / "tls.crt")
    followed = follow_client(config)
    before = followed.context
    write_pair(tmp_path, "another")
    assert followed.look()
    assert followed.context is not before and followed.context is not None
    assert followed.context.verify_mode is ssl.CERT_REQUIRED


def test_without_files_there_is_nothing_to_follow() -> None:
    assert not follow_server(ServerTlsConfig(), "port 1").has_files
    assert not follow_server(ServerTlsConfig(test_mode=True), "port 1").has_files
    assert not follow_client(ClientTlsConfig(enable=True)).has_files
