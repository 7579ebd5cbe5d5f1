"""Lock-out of addresses: counted within a window, ended by time, bounded in memory."""

from __future__ import annotations

from kourou.access.lockout import MAX_ENTRIES, LockedOut, Lockout


def lockout() -> Lockout:
    return Lockout(attempts=3, window_ms=1_000, time_ms=5_000)


def test_failures_are_counted_within_the_window() -> None:
    table = lockout()
    assert [table.failed("a", "u", now) for now in (0, 600, 1_200)] == [None, None, None]
    assert [table.failed("a", "u", now) for now in (1_300, 1_400)] == [None, LockedOut.USER]
    assert table.left_ms("a", "u", 1_400) == 5_000


def test_a_lock_ends_and_counting_begins_anew() -> None:
    table = lockout()
    for _ in range(3):
        table.failed("a", "u", 0)
    assert [table.left_ms("a", "u", now) for now in (0, 4_999, 5_000)] == [5_000, 1, 0]
    assert not table.failed("a", "u", 5_001)


def test_other_users_of_the_host_are_served_until_many_are_tried() -> None:
    table = lockout()
    for _ in range(3):
        table.failed("a", "u", 0)
    assert (table.left_ms("a", "v", 1), table.left_ms("b", "u", 1)) == (0, 0)
    locks = [table.failed("a", f"user{number}", 1) for number in range(40)]
    assert locks.count(LockedOut.ADDRESS) == 1
    assert table.left_ms("a", "v", 1) == 5_000
    assert table.left_ms("b", "v", 1) == 0


def test_an_address_has_a_lock_as_long_as_any_user_is_locked_out() -> None:
    table = lockout()
    for now, user in ((0, "u"), (2_000, "v")):
        assert table.has_lock("a", now) is (user == "v")
        for _ in range(3):
            table.failed("a", user, now)
    assert [table.has_lock("a", now) for now in (2_000, 6_999, 7_000)] == [True, True, False]
    assert not table.has_lock("b", 2_000)
    for number in range(MAX_ENTRIES + 10):
        for _ in range(3):
            table.failed(f"host-{number}", "u", 8_000)
    assert len(table._locked_until_ms) == MAX_ENTRIES


def test_memory_is_bounded_by_entries_and_names() -> None:
    table = lockout()
    for number in range(3 * MAX_ENTRIES):
        table.failed(f"10.{number}", "x" * 1_000_000 if number % 1_000 == 0 else "u", 0)
    assert len(table) == MAX_ENTRIES
    assert all(len(name) <= 65 for _, name in table._entries)


def test_the_oldest_are_forgotten_first() -> None:
    table = lockout()
    for number in range(MAX_ENTRIES):
        table.failed(f"10.{number}", "u", 0)
    assert ("10.0", " u") not in table._entries
    assert (f"10.{MAX_ENTRIES - 1}", " u") in table._entries


def test_ipv6_counts_by_the_network_of_a_host() -> None:
    table = lockout()
    for number in range(3):
        table.failed(f"2001:db8:0:7::{number}", "u", 0)
    assert table.left_ms("2001:db8:0:7:ffff::1", "u", 0) == 5_000
    assert table.left_ms("2001:db8:0:8::1", "u", 0) == 0


def test_a_link_local_address_may_have_a_zone() -> None:
    table = lockout()
    for number in range(3):
        table.failed(f"fe80::{number}%eth0", "u", 0)
    assert table.left_ms("fe80::9%eth0", "u", 0) == 5_000


def test_ipv4_written_as_ipv6_is_the_same_address_and_not_all_of_them() -> None:
    table = lockout()
    for _ in range(3):
        table.failed("::ffff:10.0.0.1", "u", 0)
    assert table.left_ms("10.0.0.1", "u", 0) == 5_000
    assert table.left_ms("::ffff:10.0.0.2", "u", 0) == 0
