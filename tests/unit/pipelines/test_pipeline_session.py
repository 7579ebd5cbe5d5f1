"""The session of a command: Ctrl-C inside it is told in one line."""

from __future__ import annotations

import logging
import signal

import pytest

from tests.needed import need_module

need_module("pyspark")

from kourou.spark.pipelines.pipeline_session import _plain_interrupts  # noqa: E402


def test_ctrl_c_is_an_interrupt_and_pythons_own(caplog: pytest.LogCaptureFixture) -> None:
    def pysparks(_number: int, _frame: object) -> None:
        raise AssertionError("the JVM is asked")

    before = signal.signal(signal.SIGINT, pysparks)
    try:
        with pytest.raises(KeyboardInterrupt), _plain_interrupts():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is pysparks
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_py4j_logs_is_not_seen_and_what_others_log_is(caplog: pytest.LogCaptureFixture) -> None:
    with _plain_interrupts():
        logging.error("Exception while sending command.")
        logging.getLogger("kourou.spark").error("a stream is started again")
    logging.error("after it")
    assert caplog.messages == ["a stream is started again", "after it"]
