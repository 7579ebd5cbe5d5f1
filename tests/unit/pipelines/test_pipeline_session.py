"""The session of a command: Ctrl-C inside it is reported in one line."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.needed import need_module

need_module("pyspark")

from kourou.errors import ConfigError  # noqa: E402
from kourou.spark.pipelines.pipeline_session import (  # noqa: E402
    _default_interrupts,
    _prepare,
    pipeline_session,
)


def test_ctrl_c_is_an_interrupt_and_pythons_own(caplog: pytest.LogCaptureFixture) -> None:
    def pysparks(_number: int, _frame: object) -> None:
        raise AssertionError("the JVM is asked")

    before = signal.signal(signal.SIGINT, pysparks)
    try:
        with pytest.raises(KeyboardInterrupt), _default_interrupts():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is pysparks
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_py4j_logs_is_not_seen_and_what_others_log_is(caplog: pytest.LogCaptureFixture) -> None:
    _prepare()
    place = {"pathname": "/venv/py4j/java_gateway.py", "levelno": logging.ERROR, "levelname": "ERROR"}
    record = logging.makeLogRecord({**place, "msg": "Exception while sending command."})
    logging.getLogger().handle(record)
    logging.getLogger("kourou.spark").error("a stream is started again")
    logging.error("a root record")
    assert caplog.messages == ["a stream is started again", "a root record"]


@pytest.mark.parametrize("has_gateway", [False, True])
def test_ctrl_c_while_spark_starts_leaves_no_jvm(
    has_gateway: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = []

    class Jvm(subprocess.Popen[bytes]):
        def __init__(self) -> None:
            """Nothing is started."""

        def __del__(self) -> None:
            """And nothing left behind."""

        def kill(self) -> None:
            killed.append(self)

        def wait(self, timeout: float | None = None) -> int:
            return -9

    def launch_gateway(*_words: object, **_options: object) -> None:
        proc = Jvm()
        if has_gateway:
            monkeypatch.setattr("pyspark.SparkContext._gateway", SimpleNamespace(proc=proc))
            del proc
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.setattr("kourou.spark.pipelines.pipeline_session.local_session", launch_gateway)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(KeyboardInterrupt), pipeline_session("test"):
        raise AssertionError("it began")
    assert len(killed) == 1 and not list(tmp_path.iterdir())


def test_a_start_that_fails_is_reported_without_a_stack_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    message = "Exception in thread main SparkException: Master must either be yarn or local"

    def fails(*_words: object, **_options: object) -> None:
        os.write(2, f"{message}\n\tat SparkSubmit.main(SparkSubmit.scala)\n\t... 3 more\n".encode())
        raise ConfigError("Spark did not start")

    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.setattr("kourou.spark.pipelines.pipeline_session.local_session", fails)
    with pytest.raises(ConfigError) as caught, pipeline_session("x", master="loca"):
        raise AssertionError("it began")
    assert caught.value.problems == ("Spark did not start", message)
