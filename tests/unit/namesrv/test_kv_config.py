"""kvConfig.json: RocketMQ's file, replaced atomically, its predecessor kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.namesrv.kv_config import KvConfig, load_kv_config, save_kv_config

# As both 4.9.7 and 5.5.0 left it.
APACHES = '{"configTable":{"ORDER_TOPIC_CONFIG":{"BinOrderTopic":"broker-a:4"},"golden_ns":{}}}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "namesrv" / "kvConfig.json"


def test_a_file_of_apache_is_read_and_written_back_the_same(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(APACHES)
    kv_config = load_kv_config(path)
    assert kv_config.get("ORDER_TOPIC_CONFIG", "BinOrderTopic") == "broker-a:4"
    assert kv_config.namespace("golden_ns") == {}
    assert kv_config.to_json() == APACHES


def test_put_get_delete() -> None:
    kv_config = KvConfig()
    assert (kv_config.get("ns", "k"), kv_config.namespace("ns")) == (None, None)
    kv_config.put("ns", "k", "v")
    kv_config.put("ns", "k", "w")
    assert (kv_config.get("ns", "k"), kv_config.namespace("ns")) == ("w", {"k": "w"})
    kv_config.delete("ns", "k")
    kv_config.delete("unknown", "k")
    assert (kv_config.get("ns", "k"), kv_config.namespace("ns")) == (None, {})
    assert kv_config.to_json() == '{"configTable":{"ns":{}}}'


def test_saved_values_survive_and_the_file_before_is_kept(path: Path) -> None:
    kv_config = KvConfig()
    kv_config.put("ns", "clé", 'a "b"\n漢')
    save_kv_config(path, kv_config.to_json())
    assert not path.with_name("kvConfig.json.bak").exists()
    first = path.read_text()
    kv_config.put("ns", "k", "v")
    save_kv_config(path, kv_config.to_json())
    assert load_kv_config(path).namespace("ns") == {"clé": 'a "b"\n漢', "k": "v"}
    assert path.with_name("kvConfig.json.bak").read_text() == first
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["kvConfig.json", "kvConfig.json.bak"]


def test_no_file_is_an_empty_table(path: Path) -> None:
    assert load_kv_config(path).to_json() == '{"configTable":{}}'


@pytest.mark.parametrize("damaged", ["", '{"configTable":{"ns"', "[1]"])
def test_of_a_damaged_file_the_backup_is_taken(
    path: Path, damaged: str, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    path.write_text(damaged)
    path.with_name("kvConfig.json.bak").write_text(APACHES)
    assert load_kv_config(path).to_json() == APACHES
    assert "its values are taken from" in caplog.text


@pytest.mark.parametrize("backup", [None, "{"])
def test_a_damaged_file_without_a_good_backup_stops_the_start(path: Path, backup: str | None) -> None:
    path.parent.mkdir()
    path.write_text("not json")
    if backup is not None:
        path.with_name("kvConfig.json.bak").write_text(backup)
    with pytest.raises(ConfigError, match=r"kvConfig\.json: damaged .*; repair or remove it"):
        load_kv_config(path)


def test_a_file_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match="cannot be written"):
        save_kv_config(tmp_path / "file" / "kvConfig.json", "{}")
