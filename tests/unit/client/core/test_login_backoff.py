"""LoginBackoff: how often a rejected login is repeated, and what is sent meanwhile."""

from __future__ import annotations

import pytest

from kourou.access.lockout import Lockout
from kourou.client.core.login_backoff import LoginBackoff
from kourou.client.core.refusals import response_error
from kourou.config import BrokerConfig
from kourou.errors import AccessDeniedError
from kourou.testing.clock import FakeClock

PLACE = "10.0.0.1:10911"
PULL, HEARTBEAT, ROUTE = 11, 34, 105
WRONG = response_error(16, "check signature failed.", PLACE, None)
FORBIDDEN = response_error(
    16, "User:a has no permission to access Topic:t from 10.0.0.7, no matched.", "", None
)


def is_sent(backoff: LoginBackoff, code: int = PULL, address: str = PLACE) -> bool:
    try:
        backoff.check(address, code)
    except AccessDeniedError as error:
        assert error.remark == "check signature failed."
        return False
    return True


def test_loops_of_a_wrong_login_do_not_reach_the_attempts_of_the_lock_out() -> None:
    config = BrokerConfig()
    lockout = Lockout(
        attempts=config.access_lockout_attempts,
        window_ms=config.access_lockout_window,
        time_ms=config.access_lockout_time,
    )
    clock = FakeClock(wall_ms=0)
    backoff = LoginBackoff(clock)
    sent = []
    for _ in range(10 * config.access_lockout_window // 100):
        for code in (HEARTBEAT, PULL, PULL, PULL, PULL):
            if is_sent(backoff, code):
                sent.append(clock.monotonic_ms())
                assert not lockout.failed("10.0.0.7", "a", clock.monotonic_ms())
                backoff.answered(PLACE, code, WRONG)
        clock.advance(ms=100)
    assert sent[:6] == [0, 0, 1_000, 3_000, 7_000, 15_000]
    assert max(after - before for before, after in zip(sent, sent[1:], strict=False)) == 30_000


def test_one_request_checks_the_login_while_the_others_wait_for_its_answer() -> None:
    clock = FakeClock(wall_ms=0)
    backoff = LoginBackoff(clock)
    backoff.answered(PLACE, PULL, WRONG)
    clock.advance(ms=1_000)
    assert [is_sent(backoff) for _ in range(3)] == [True, False, False]
    clock.advance(ms=1_000)
    assert is_sent(backoff), "the first got no answer"
    backoff.answered(PLACE, PULL)
    assert is_sent(backoff) and is_sent(backoff)
    backoff.answered(PLACE, PULL, WRONG)
    assert not is_sent(backoff)
    clock.advance(ms=1_000)
    assert is_sent(backoff), "the pause begins anew after a success"


@pytest.mark.parametrize("answer", [None, FORBIDDEN])
def test_an_answer_that_is_no_wrong_login_ends_the_pause(answer: AccessDeniedError | None) -> None:
    clock = FakeClock(wall_ms=0)
    backoff = LoginBackoff(clock)
    backoff.answered(PLACE, PULL, answer)
    assert is_sent(backoff)
    backoff.answered(PLACE, PULL, WRONG)
    backoff.answered(PLACE, HEARTBEAT, WRONG)
    clock.advance(ms=1_000)
    assert is_sent(backoff, HEARTBEAT)
    backoff.answered(PLACE, HEARTBEAT, answer)
    assert is_sent(backoff, PULL)


def test_requests_that_were_not_rejected_and_other_servers_do_not_wait() -> None:
    """A name server that knows no user of the broker may serve routes nevertheless."""
    clock = FakeClock(wall_ms=0)
    backoff = LoginBackoff(clock)
    backoff.answered(PLACE, PULL, WRONG)
    for _ in range(3):
        assert is_sent(backoff, ROUTE) and is_sent(backoff, PULL, "10.0.0.2:10911")
        backoff.answered(PLACE, ROUTE)
        assert not is_sent(backoff, PULL)
