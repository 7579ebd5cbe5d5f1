"""How far behind a slave is in time, and the rate of its link."""

from __future__ import annotations

from kourou.broker.replication.lag import ReplicaLag, TransferRate


def test_a_slave_that_has_everything_is_not_behind_however_long_ago_that_was() -> None:
    lag = ReplicaLag()
    lag.acknowledged(100, 100, now_s=1)
    assert lag.seconds(now_s=60) == 0
    lag.grown(200, now_s=60)
    assert lag.seconds(now_s=60.5) == 0.5
    lag.acknowledged(200, 200, now_s=61)
    assert lag.seconds(now_s=70) == 0


def test_under_load_a_slave_is_as_late_as_its_acknowledgements() -> None:
    """It never has all there is; each second it has what was there a second ago."""
    lag = ReplicaLag()
    lag.grown(10, now_s=0)
    for second in range(1, 100):
        lag.acknowledged(second * 10, (second + 1) * 10, now_s=second)
        assert lag.seconds(now_s=second) == 1


def test_a_slave_that_is_stuck_gets_later_and_later() -> None:
    lag = ReplicaLag()
    lag.grown(10, now_s=0)
    lag.acknowledged(5, 1_000, now_s=3)
    lag.acknowledged(9, 2_000, now_s=8)
    assert lag.seconds(now_s=9) == 9
    lag.acknowledged(10, 2_000, now_s=10)
    assert lag.seconds(now_s=11) == 11, "the state of second 0 is the last that it has"
    lag.acknowledged(1_999, 2_000, now_s=12)
    assert lag.seconds(now_s=12) == 12, "noted at second 10, but not reached"


def test_a_slave_that_connects_is_behind_from_then_on() -> None:
    lag = ReplicaLag()
    lag.acknowledged(0, 500, now_s=7)
    assert lag.seconds(now_s=9) == 2


def test_the_rate_is_of_the_last_second_and_ends_with_the_transfers() -> None:
    rate = TransferRate(now_s=0)
    for tenth in range(20):
        rate.add(100, now_s=tenth / 10)
    assert rate.per_second(now_s=2) == 1_000
    assert rate.per_second(now_s=10) == 0
