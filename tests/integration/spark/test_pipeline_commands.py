"""`kourou pipeline` asks the cluster before it starts Spark."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kourou.cli.pipeline.command import pipeline_app
from tests.needed import need_module


def test_a_name_server_that_cannot_be_reached_is_reported_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need_module("pyspark")
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    result = CliRunner().invoke(pipeline_app, ["stats", "-n", "127.0.0.1:1", "-t", "s"])
    assert result.exit_code == 1
    assert "no name server can be reached" in result.output
