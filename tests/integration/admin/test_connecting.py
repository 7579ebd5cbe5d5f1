"""How commands connect: keys of access control, TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou.client.core.credentials import Credentials
from kourou.client.core.credentials_sources import read_tools_file
from kourou.config import NamesrvConfig
from kourou.config.host import LOOPBACK
from kourou.embed import NameServer
from kourou.errors import ConfigError
from kourou.protocol.codes import RequestCode
from kourou.transport.request import Request
from tests.unit.admin.command_line import run_line


def tools_file(folder: Path, text: str) -> Path:
    path = folder / "conf" / "tools.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_keys_are_read_as_apache_writes_them(tmp_path: Path) -> None:
    path = tools_file(tmp_path, "# a comment\naccessKey: rocketmq2\nsecretKey: '12345678' # secret\n\n")
    assert read_tools_file(path) == Credentials("rocketmq2", "12345678")
    assert read_tools_file(tools_file(tmp_path, "# nothing\n")) is None


def test_a_file_with_one_key_or_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="accessKey and secretKey are both needed"):
        read_tools_file(tools_file(tmp_path, "accessKey: a\n"))
    path = tools_file(tmp_path, "")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_tools_file(path)


async def test_a_file_that_is_named_has_keys(tmp_path: Path) -> None:
    """`accessKey` without a colon is no key: the request would go out unsigned."""
    path = tools_file(tmp_path, "accessKey admin\nsecretKey secret\n")
    result = await run_line("127.0.0.1:1", "topicList", "--acl", str(path))
    assert (result.exit_code, result.problem) == (
        1,
        f"mqadmin topicList: {path}: accessKey and secretKey are both needed",
    )


@pytest.fixture
async def namesrv() -> AsyncIterator[NameServer]:
    """One with TLS, and a certificate that cannot be verified."""
    config = NamesrvConfig(bind_address=LOOPBACK, listen_port=0, tls_test_mode_enable=True)
    async with NameServer(config) as server:
        yield server


async def test_requests_are_signed_with_the_keys_of_the_home_folder(
    namesrv: NameServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, str]] = []
    processors = namesrv._server._dispatch._processors
    answer = processors[RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER]

    def look(request: Request) -> object:
        asked.append(dict(request.ext_fields))
        return answer(request)

    monkeypatch.setitem(processors, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, look)
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    assert (await run_line(namesrv.address, "topicList")).exit_code == 0
    tools_file(tmp_path, "accessKey: ak\nsecretKey: sk\n")
    assert (await run_line(namesrv.address, "topicList")).exit_code == 0
    assert "AccessKey" not in asked[0]
    assert asked[1]["AccessKey"] == "ak" and asked[1]["Signature"]
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "of the environment")
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "sk")
    assert (await run_line(namesrv.address, "topicList")).exit_code == 0
    assert asked[2]["AccessKey"] == "of the environment"


async def test_tls_by_option_and_by_file(namesrv: NameServer, tmp_path: Path) -> None:
    assert (await run_line(namesrv.address, "topicList", "--tls")).exit_code == 0
    file = tmp_path / "tls.properties"
    file.write_text("tls.client.authServer=true\n")
    refused = await run_line(namesrv.address, "topicList", "--tls-config", str(file))
    assert refused.exit_code == 1 and "certificate" in refused.stderr.lower()
