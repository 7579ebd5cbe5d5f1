"""What a master answers to a hello: where a slave goes on, or why it cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kourou.protocol.ha import Epoch, LogTail, MasterHello, SlaveHello
from kourou.store.replica.handshake import MasterLog, answer_hello

RAW = bytes(number % 251 for number in range(10_000))
LOG = MasterLog(
    min_phy_offset=2_000,
    max_phy_offset=9_000,
    file_bytes=1_000,
    epochs=(Epoch(1, 0), Epoch(2, 6_000)),
    read=lambda at, size: RAW[at : at + size],
)
SLAVE = SlaveHello(
    cluster="c",
    broker_name="b",
    broker_id=1,
    epochs=LOG.epochs,
    min_phy_offset=0,
    max_phy_offset=7_000,
    file_bytes=1_000,
    tail=LogTail.of(6_500, RAW[6_500:7_000]),
)


def answer(log: MasterLog = LOG, *, from_last_file: bool = False, **slave: Any) -> MasterHello:
    hello = msgspec.structs.replace(SLAVE, **slave)
    return answer_hello(hello, log, cluster="c", broker_name="b", from_last_file=from_last_file)


def test_a_slave_goes_on_where_its_log_ends() -> None:
    assert answer() == MasterHello(
        epochs=LOG.epochs, min_phy_offset=2_000, max_phy_offset=9_000, start_phy_offset=7_000
    )
    assert answer(max_phy_offset=9_000, tail=LogTail.of(8_999, RAW[8_999:9_000])).start_phy_offset == 9_000


def test_an_empty_slave_gets_all_there_is_or_the_last_file() -> None:
    empty: dict[str, Any] = {"min_phy_offset": 0, "max_phy_offset": 0, "tail": None, "epochs": ()}
    assert answer(**empty).start_phy_offset == 2_000
    assert answer(**empty, from_last_file=True).start_phy_offset == 9_000
    log = replace(LOG, max_phy_offset=9_500)
    assert answer(log, **empty, from_last_file=True).start_phy_offset == 9_000


@pytest.mark.parametrize(
    ("slave", "refusal"),
    [
        ({"cluster": "d"}, "a slave of broker b in cluster d; this is broker b in cluster c"),
        ({"broker_name": "x"}, "a slave of broker x in cluster c; this is broker b in cluster c"),
        ({"broker_id": 0}, "the brokerId of a slave is greater than 0, not 0"),
        (
            {"file_bytes": 2_000},
            "the slave's mappedFileSizeCommitLog is 2000, the master's 1000: they must be the same",
        ),
        (
            {"max_phy_offset": 1_500, "tail": LogTail.of(1_000, RAW[1_000:1_500]), "epochs": (Epoch(1, 0),)},
            "the slave's log ends at 1500, the master's begins at 2000: what is between was deleted; "
            "remove the slave's store to copy all of it",
        ),
    ],
)
def test_a_slave_that_cannot_go_on_gets_the_reason(slave: dict[str, Any], refusal: str) -> None:
    found = answer(**slave)
    assert (found.refusal, found.is_diverged) == (refusal, False)


@pytest.mark.parametrize(
    ("slave", "refusal"),
    [
        pytest.param(
            {"max_phy_offset": 9_001, "tail": None},
            "the slave's log ends at 9001, the master's at 9000; they are the same up to 9000 at most",
            id="the slave has more",
        ),
        pytest.param(
            {"epochs": (Epoch(1, 0),)},
            "the slave's log ends at 7000, the master's at 9000; they are the same up to 6000 at most",
            id="the master lost its end and has grown past the slave",
        ),
        pytest.param(
            {"epochs": (Epoch(1, 0), Epoch(2, 6_500))},
            "the slave's log ends at 7000, the master's at 9000; they are the same up to 6000 at most",
            id="two masters in one epoch",
        ),
        pytest.param(
            {"epochs": (Epoch(3, 0),)},
            "the slave's log ends at 7000, the master's at 9000; they are the same up to 0 at most",
            id="another broker's epochs",
        ),
        pytest.param(
            {"tail": LogTail.of(6_500, bytes(500))},
            "the slave's log ends at 7000, the master's at 9000; they differ between 6500 and 7000",
            id="other bytes",
        ),
    ],
)
def test_a_log_that_is_not_the_beginning_of_the_masters_is_reported(
    slave: dict[str, Any], refusal: str
) -> None:
    found = answer(**slave)
    assert (found.refusal, found.is_diverged) == (refusal, True)


def test_epochs_that_the_master_has_forgotten_are_not_compared() -> None:
    log = replace(LOG, epochs=(Epoch(7, 6_900),))
    assert answer(log, epochs=(Epoch(1, 0), Epoch(2, 6_000))).start_phy_offset == 7_000


def test_without_epochs_the_last_bytes_decide() -> None:
    assert answer(epochs=()).start_phy_offset == 7_000
    assert answer(epochs=(), tail=LogTail.of(6_500, bytes(500))).is_diverged
