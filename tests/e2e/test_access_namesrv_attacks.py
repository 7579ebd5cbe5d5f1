"""Attacks on a name server that is open to all, as delivered: nothing is written where a request says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kourou.protocol.codes import RequestCode as Code
from tests.interop.kit.access_accounts import UNSIGNED
from tests.interop.kit.access_answers import answer_of
from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv
from tests.interop.kit.process import ServerProcess
from tests.interop.kit.signed_wire import SignedConnection

pytestmark = pytest.mark.e2e

_KEYS: Final = (
    # CVE-2023-37582: any file, with chosen text.
    *("configStorePath", "kvConfigPath", "configStorePathName", "rocketmqHome", "configBlackList"),
    *("accessAuditLogPath", "accessLimitsPath", "aclEnable", "authenticationEnabled"),
    *("initAuthenticationUser", "innerClientAuthenticationCredentials", "accessOpenConfig"),
)


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with launch_kourou_namesrv(tmp_path_factory.mktemp("attacked")) as server:
        yield server.wait_ready()


def _config(connection: SignedConnection) -> str:
    answer = connection.call(Code.GET_NAMESRV_CONFIG)
    assert answer is not None and answer.code == 0, answer
    return answer.body.decode()


@pytest.mark.parametrize("key", _KEYS)
def test_no_request_changes_paths_or_access_control(namesrv: ServerProcess, tmp_path: Path, key: str) -> None:
    escaped = tmp_path / "escaped"
    with SignedConnection(namesrv.address, UNSIGNED) as connection:
        before = _config(connection)
        body = f"{key}={escaped}\nproductEnvName=* * * * * touch {escaped}\n".encode()
        answer = answer_of(connection.call(Code.UPDATE_NAMESRV_CONFIG, {}, body))
        assert answer.code != 0, answer
        assert _config(connection) == before
    assert not escaped.exists()
    written = [path for path in namesrv.log_path.parent.rglob("*.conf*") if str(escaped) in path.read_text()]
    assert written == []


@pytest.mark.parametrize("name", ["../escaped", "/escaped", "..\\escaped", "a\0b"])
def test_names_are_no_paths(namesrv: ServerProcess, name: str) -> None:
    with SignedConnection(namesrv.address, UNSIGNED) as connection:
        value = {"namespace": name, "key": name, "value": "x"}
        connection.call(Code.PUT_KV_CONFIG, value)
        connection.call(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": name})
        connection.call(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": name})
        connection.call(Code.DELETE_KV_CONFIG, {"namespace": name, "key": name})
        assert _config(connection)
    assert list(namesrv.log_path.parents[1].rglob("*escaped*")) == []
    assert not Path("/escaped").exists()
