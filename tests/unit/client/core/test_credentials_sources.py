"""Credentials from files and from the environment; no secret in an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou import Credentials
from kourou.client.core.credentials_sources import credentials_of_environment, read_tools_file
from kourou.errors import ConfigError


@pytest.mark.parametrize(
    "text",
    [
        "accessKey: ann\nsecretKey: a=b:c\nsecurityToken: 't'\n",
        "accessKey=ann\nsecretKey=a=b:c\nsecurityToken=t\nsignature=x\n",
        "# keys\n  accessKey : ann # who\n  secretKey : a=b:c\n  securityToken = t",
    ],
    ids=["tools.yml", "key", "spaces"],
)
def test_files_of_tools_and_clients(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    assert Credentials.from_file(path) == Credentials("ann", "a=b:c", "t")


def test_a_file_without_keys(tmp_path: Path) -> None:
    path = tmp_path / "tools.yml"
    path.write_text("accessKeys: many\n")
    assert read_tools_file(path) is None
    with pytest.raises(ConfigError, match=r"tools.yml: accessKey and secretKey are both needed"):
        Credentials.from_file(path)


def test_one_key_alone_is_refused_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "tools.yml"
    path.write_text("secretKey: the-secret\n")
    with pytest.raises(ConfigError) as refused:
        Credentials.from_file(path)
    assert "the-secret" not in str(refused.value)
    with pytest.raises(ConfigError, match="ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY are both") as refused:
        credentials_of_environment({"ROCKETMQ_SECRET_KEY": "the-secret"})
    assert "the-secret" not in str(refused.value)


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"ROCKETMQ_ACCESS_KEY": "ann", "ROCKETMQ_SECRET_KEY": "s"}
    assert credentials_of_environment({}) is None
    assert credentials_of_environment(keys) == Credentials("ann", "s")
    assert credentials_of_environment({**keys, "ROCKETMQ_SECURITY_TOKEN": "t"}) == Credentials(
        "ann", "s", "t"
    )
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    assert Credentials.from_environment() == Credentials("ann", "s")
    monkeypatch.delenv("ROCKETMQ_ACCESS_KEY")
    monkeypatch.delenv("ROCKETMQ_SECRET_KEY")
    with pytest.raises(ConfigError, match="are not set"):
        Credentials.from_environment()
