"""ConsumerOffsetManager: commits, resets by the server, and files of Apache."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kourou.protocol.bodies.offsets import ConsumerOffsetSerializeWrapper
from kourou.store.config_tables import ConsumerOffsetTable, load_table
from tests.golden.config_files import FOLDERS
from tests.unit.broker.tables_kit import Tables


def make(root: Path, **keys: object) -> Tables:
    tables = Tables(root, **keys)
    tables.offsets.load()
    return tables


def test_a_commit_is_what_the_next_query_answers(tmp_path: Path) -> None:
    offsets = make(tmp_path).offsets
    assert offsets.query("CG", "orders", 0) == -1
    assert offsets.query_all("CG", "orders") is None
    offsets.commit("CG", "orders", 0, 5, "10.0.0.9:1")
    offsets.commit("CG", "orders", 1, 7, "10.0.0.9:1")
    assert offsets.query("CG", "orders", 0) == 5
    assert offsets.query("CG", "orders", 2) == -1
    assert offsets.query_all("CG", "orders") == {0: 5, 1: 7}
    assert offsets.offset_table == {"orders@CG": {0: 5, 1: 7}}
    assert offsets.is_dirty


def test_lists_of_names_follow_every_change(tmp_path: Path) -> None:
    """They are kept between requests."""
    offsets = make(tmp_path).offsets
    assert offsets.topics_of("CG") == set()
    offsets.commit("CG", "orders", 0, 5, "")
    assert (offsets.topics_of("CG"), offsets.groups_of("orders")) == ({"orders"}, {"CG"})
    offsets.clone("CG", "CG2", "orders")
    assert offsets.groups_of("orders") == {"CG", "CG2"}
    offsets.assign_reset("bills", "CG", 0, 1)
    assert offsets.topics_of("CG") == {"orders", "bills"}
    offsets.follow(ConsumerOffsetSerializeWrapper({"stock@CG": {0: 1}}))
    assert offsets.topics_of("CG") == {"orders", "bills", "stock"}
    offsets.remove_group("CG")
    assert (offsets.topics_of("CG"), offsets.groups_of("orders")) == (set(), {"CG2"})
    offsets.persist()
    again = make(tmp_path).offsets
    assert again.groups_of("orders") == {"CG2"}


def test_a_step_back_is_taken_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    offsets = make(tmp_path).offsets
    offsets.commit("CG", "orders", 0, 5, "10.0.0.9:1")
    with caplog.at_level(logging.WARNING):
        offsets.commit("CG", "orders", 0, 5, "10.0.0.9:1")
        assert not caplog.records
        offsets.commit("CG", "orders", 0, 3, "10.0.0.9:1")
    assert offsets.query("CG", "orders", 0) == 3
    assert caplog.messages == ["10.0.0.9:1 moved orders@CG/0 back from 5 to 3"]


def test_the_version_goes_up_every_so_many_commits(tmp_path: Path) -> None:
    offsets = make(tmp_path, consumer_offset_update_version_step=3).offsets
    for queue_offset in range(7):
        offsets.commit("CG", "orders", 0, queue_offset, "")
    assert offsets.data_version.counter == 2


def test_topics_and_groups_are_found_and_removed_by_whole_names(tmp_path: Path) -> None:
    offsets = make(tmp_path).offsets
    for topic, group in (("orders", "CG"), ("orders2", "CG"), ("orders", "CG2")):
        offsets.commit(group, topic, 0, 1, "")
    assert offsets.topics_of("CG") == {"orders", "orders2"}
    assert offsets.groups_of("orders") == {"CG", "CG2"}
    offsets.remove_topic("orders")
    assert set(offsets.offset_table) == {"orders2@CG"}
    assert (offsets.topics_of("CG"), offsets.groups_of("orders")) == ({"orders2"}, set())
    offsets.persist()
    offsets.remove_group("CG2")
    assert not offsets.is_dirty
    offsets.remove_group("CG")
    assert offsets.offset_table == {}


def test_a_clone_goes_its_own_way(tmp_path: Path) -> None:
    offsets = make(tmp_path).offsets
    offsets.commit("CG", "orders", 0, 5, "")
    offsets.clone("CG", "new", "orders")
    offsets.clone("nobody", "new", "others")
    offsets.commit("CG", "orders", 0, 6, "")
    assert offsets.query("new", "orders", 0) == 5
    assert offsets.query_all("new", "others") is None


def test_a_pending_reset_rules_until_it_is_taken(tmp_path: Path) -> None:
    tables = make(tmp_path)
    offsets = tables.offsets
    offsets.commit("CG", "orders", 0, 50, "")
    offsets.assign_reset("orders", "CG", 0, 10)
    offsets.commit("CG", "orders", 0, 51, "")
    assert offsets.reset_pending("orders", "CG", 0) == 10
    assert offsets.reset_pending("orders", "CG", 1) is None
    assert offsets.query("CG", "orders", 0) == 10
    tables.set_keys(use_server_side_reset_offset=False)
    assert offsets.query("CG", "orders", 0) == 51
    tables.set_keys(use_server_side_reset_offset=True)
    assert offsets.take_reset("orders", "CG", 1) is None
    assert offsets.take_reset("orders", "CG", 0) == 10
    assert offsets.take_reset("orders", "CG", 0) is None
    assert offsets.query("CG", "orders", 0) == 51


def test_a_reset_counts_for_groups_without_members_and_offsets(tmp_path: Path) -> None:
    offsets = make(tmp_path).offsets
    offsets.assign_reset("orders", "CG", 3, 10)
    assert offsets.query_all("CG", "orders") == {3: 10}
    assert offsets.is_dirty


@pytest.mark.parametrize(
    "place", [("", "CG", 0, 1), ("orders", "", 0, 1), ("orders", "CG", -1, 1), ("orders", "CG", 0, -1)]
)
def test_a_reset_to_nowhere_is_ignored(tmp_path: Path, place: tuple[str, str, int, int]) -> None:
    offsets = make(tmp_path).offsets
    offsets.assign_reset(*place)
    assert offsets.offset_table == {}


def test_removed_with_its_topic_a_reset_does_not_come_back(tmp_path: Path) -> None:
    offsets = make(tmp_path).offsets
    offsets.assign_reset("orders", "CG", 0, 10)
    offsets.remove_topic("orders")
    assert offsets.query("CG", "orders", 0) == -1


def test_pulled_is_what_was_given_or_what_is_committed(tmp_path: Path) -> None:
    offsets = make(tmp_path).offsets
    offsets.commit("CG", "orders", 0, 5, "")
    assert offsets.query_pull("CG", "orders", 0) == 5
    offsets.commit_pull("CG", "orders", 0, 9)
    assert offsets.query_pull("CG", "orders", 0) == 9
    assert offsets.query_pull("CG", "orders", 1) == -1


def test_what_is_persisted_is_loaded_again(tmp_path: Path) -> None:
    tables = make(tmp_path, consumer_offset_update_version_step=1)
    tables.offsets.commit("CG", "orders", 0, 5, "")
    tables.offsets.commit("CG", "%RETRY%CG", 0, 2, "")
    tables.offsets.persist()
    assert not tables.offsets.is_dirty
    again = make(tmp_path).offsets
    assert again.offset_table == {"orders@CG": {0: 5}, "%RETRY%CG@CG": {0: 2}}
    assert again.data_version == tables.offsets.data_version


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_files_of_apache_are_loaded_and_written_for_apache(tmp_path: Path, folder: Path) -> None:
    raw = (folder / "consumerOffset.json").read_bytes()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_bytes(raw)
    offsets = make(tmp_path).offsets
    assert offsets.offset_table
    assert offsets.offset_table == load_table(raw, ConsumerOffsetTable).offset_table
    assert load_table(offsets.dump(), ConsumerOffsetTable).offset_table == offsets.offset_table
