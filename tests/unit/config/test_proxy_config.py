"""The configuration of a proxy: Apache's rmq-proxy.json."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.config.proxy_loader import load_proxy_config
from kourou.errors import ConfigError


def written(folder: Path, text: str) -> Path:
    path = folder / "rmq-proxy.json"
    path.write_text(text)
    return path


def test_a_file_of_apaches(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """{
  "rocketMQClusterName": "DefaultCluster",
  "proxyMode": "LOCAL",
  "namesrvAddr": "10.0.0.1:9876;10.0.0.2:9876",
  "grpcServerPort": 18081,
  "maxMessageSize": null,
  "tlsTestModeEnable": false,
  "grpcThreadPoolNums": 64
}""",
    )
    config, notes = load_proxy_config(path)
    assert config.grpc_server_port == 18081 and config.namesrv_addr == "10.0.0.1:9876;10.0.0.2:9876"
    assert config.tls_test_mode_enable is False and config.max_message_size == 4 * 1024 * 1024
    assert [note.split(": ")[0] for note in notes] == [f"{path}:3", f"{path}:8"]
    assert "LOCAL" in notes[0] and "there is no thread pool to size" in notes[1]


def test_options_win_and_the_environment_comes_last(tmp_path: Path) -> None:
    path = written(tmp_path, '{"grpcServerPort": 1}')
    environ = {"NAMESRV_ADDR": "n:9876", "ROCKETMQ_HOME": str(tmp_path)}
    config, _ = load_proxy_config(path, {"grpcServerPort": "2"}, environ=environ)
    assert (config.grpc_server_port, config.namesrv_addr) == (2, "n:9876")
    given, _ = load_proxy_config(None, {"namesrvAddr": "m:1"}, environ=environ)
    assert given.namesrv_addr == "m:1"


def test_all_problems_are_reported_together(tmp_path: Path) -> None:
    path = written(
        tmp_path, '{"grpcServerPort": "x",\n "enableTopicMessageTypeCheck": "ye",\n "grpcServrPort": 1}'
    )
    with pytest.raises(ConfigError) as caught:
        load_proxy_config(path)
    problems = caught.value.problems
    assert problems[0].startswith(f"{path}:1: grpcServerPort=x: must be a whole number from 0 to 65535")
    assert problems[1].startswith(f"{path}:2: enableTopicMessageTypeCheck=ye: must be true or false")
    assert "did you mean grpcServerPort?" in problems[2]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("grpcServerPort=1", "is not valid JSON"),
        ("[1]", "must be one JSON object"),
        ("", "is not valid JSON"),
    ],
)
def test_what_is_no_such_file(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_proxy_config(written(tmp_path, text))


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        '{"innerClientAuthenticationCredentials": "{\\"accessKey\\":\\"a\\",\\"secretKey\\":\\"hush\\"}",'
        ' "tlsKeyPassword": "hush"}',
    )
    config, notes = load_proxy_config(path)
    assert "hush" not in repr(config) and "hush" not in config.to_properties() and not notes
