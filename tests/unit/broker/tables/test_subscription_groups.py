"""SubscriptionGroupManager: groups of every broker, automatic creation, forbidden bits, files of Apache."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.broker.tables.subscription_groups import GROUPS_MADE_AT_START
from kourou.errors import RequestError
from kourou.protocol.bodies import DataVersion, SubscriptionGroupConfig
from kourou.protocol.codes import PermName
from kourou.store.config_tables import SubscriptionGroupTable, load_table
from tests.golden.config_files import FOLDERS
from tests.unit.broker.tables_kit import Tables


def make(root: Path, **keys: object) -> Tables:
    tables = Tables(root, **keys)
    tables.groups.load()
    return tables


def test_every_broker_has_apaches_groups(tmp_path: Path) -> None:
    groups = make(tmp_path).groups
    assert set(groups.table) == {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_RMQ_SYS_TRANS",
    }
    assert groups.table["TOOLS_CONSUMER"] == SubscriptionGroupConfig("TOOLS_CONSUMER")


def test_a_group_is_made_on_first_use(tmp_path: Path) -> None:
    tables = make(tmp_path)
    tables.groups.persist()
    assert tables.groups.get("CG") is None
    created = tables.groups.find("CG")
    assert created == SubscriptionGroupConfig("CG")
    assert tables.groups.find("CG") is created
    assert tables.groups.data_version == DataVersion(timestamp=tables.clock(), counter=1)
    assert tables.groups.is_dirty


@pytest.mark.parametrize("group", ["", " ", "a.b", "g" * 121])
def test_a_group_of_a_bad_name_is_not_made(tmp_path: Path, group: str) -> None:
    groups = make(tmp_path).groups
    assert groups.find(group) is None
    assert set(groups.table) == set(GROUPS_MADE_AT_START)


def test_without_automatic_creation_only_the_systems_groups_are_made(tmp_path: Path) -> None:
    tables = make(tmp_path, auto_create_subscription_group=False)
    assert tables.groups.find("CG") is None
    assert tables.groups.find("CID_RMQ_SYS_OTHER") is not None
    tables.set_keys(enable_create_sys_group=False)
    assert tables.groups.find("CID_RMQ_SYS_NEXT") is None


def test_update_and_delete(tmp_path: Path) -> None:
    groups = make(tmp_path).groups
    groups.update(SubscriptionGroupConfig("CG", retry_max_times=3))
    assert groups.table["CG"].retry_max_times == 3
    with pytest.raises(RequestError, match="unsupported key: x"):
        groups.update(SubscriptionGroupConfig("CG", attributes={"+x": "1"}))
    assert groups.table["CG"].retry_max_times == 3
    assert groups.delete("CG")
    assert not groups.delete("CG")
    assert groups.data_version.counter == 2


def test_the_factor_of_priorities_is_a_percentage(tmp_path: Path) -> None:
    groups = make(tmp_path).groups
    groups.update(SubscriptionGroupConfig("CG", attributes={"+priority.factor": "88"}))
    assert groups.table["CG"].attributes == {"priority.factor": "88"}
    with pytest.raises(RequestError, match=r"value is not in range\(0, 100\)"):
        groups.update(SubscriptionGroupConfig("CG", attributes={"+priority.factor": "101"}))


def test_forbidden_bits_are_of_one_group_and_topic(tmp_path: Path) -> None:
    groups = make(tmp_path).groups
    groups.update_forbidden("CG", "orders", PermName.READ, is_forbidden=True)
    groups.update_forbidden("CG", "others", PermName.READ, is_forbidden=True)
    assert groups.forbidden("CG", "orders") == PermName.READ
    assert groups.forbidden("other", "orders") == 0
    groups.update_forbidden("CG", "orders", PermName.READ, is_forbidden=False)
    assert groups.forbidden("CG", "orders") == 0
    assert groups.forbidden("CG", "others") == PermName.READ
    assert groups.forbidden_table == {"CG": {"others": 4}}
    groups.update_forbidden("CG", "others", PermName.READ, is_forbidden=False)
    assert groups.forbidden_table == {}
    assert groups.data_version.counter == 4


def test_what_is_persisted_is_loaded_again(tmp_path: Path) -> None:
    groups = make(tmp_path).groups
    groups.update(SubscriptionGroupConfig("CG", consume_enable=False))
    groups.update_forbidden("CG", "orders", PermName.READ, is_forbidden=True)
    groups.persist()
    again = make(tmp_path).groups
    assert again.table == groups.table
    assert again.forbidden_table == groups.forbidden_table
    assert again.data_version == groups.data_version
    assert not again.is_dirty


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_files_of_apache_are_loaded_and_written_for_apache(tmp_path: Path, folder: Path) -> None:
    raw = (folder / "subscriptionGroup.json").read_bytes()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "subscriptionGroup.json").write_bytes(raw)
    groups = make(tmp_path).groups
    theirs = load_table(raw, SubscriptionGroupTable)
    assert groups.table.items() >= theirs.subscription_group_table.items()
    assert set(groups.table) - set(theirs.subscription_group_table) <= {"CID_RMQ_SYS_TRANS"}, "not in 4.9"
    again = load_table(groups.dump(), SubscriptionGroupTable)
    assert again == SubscriptionGroupTable(groups.table, {}, groups.data_version)
