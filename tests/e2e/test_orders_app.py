"""examples/orders_app: its own tests pass, also with Kourou from a wheel in a fresh environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.install_kit import PROJECT, build_wheel, fresh_environment, install, run

APP = PROJECT / "examples" / "orders_app"

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_its_suite_passes_with_an_installed_wheel(tmp_path: Path) -> None:
    python = fresh_environment(tmp_path / "venv")
    install(python, build_wheel(tmp_path))
    where = run(python, "-c", "import kourou; print(kourou.__file__)", cwd=tmp_path).strip()
    assert where.startswith(str(tmp_path / "venv"))
    output = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", APP, cwd=tmp_path)
    assert re.search(r"\b7 passed\b", output), output


def test_its_programs_work_together(tmp_path: Path) -> None:
    """As its docstring says it: billing runs, an order is placed."""
    from kourou.testing import LocalCluster

    with LocalCluster() as mq:
        mq.create_topic("Orders")
        environ = {**os.environ, "NAMESRV_ADDR": mq.namesrv, "PYTHONUNBUFFERED": "1"}
        billing = subprocess.Popen(
            [sys.executable, "-m", "orders.billing"],
            cwd=APP, env={**environ, "PYTHONDONTWRITEBYTECODE": "1"}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            msg_id = run(
                sys.executable, "-m", "orders.shop", "order-1", "42", cwd=APP, NAMESRV_ADDR=mq.namesrv
            )
            assert [message.msg_id for message in mq.messages("Orders")] == [msg_id.strip()]
            assert billing.stdout is not None
            assert billing.stdout.readline() == "Order(order_id='order-1', cents=42)\n"
            billing.terminate()
            assert billing.wait(30) == 0
        finally:
            billing.kill()
            billing.communicate()
