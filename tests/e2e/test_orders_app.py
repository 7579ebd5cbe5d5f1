"""examples/orders_app: its own tests pass, also with Kourou from a wheel in a fresh environment."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
APP = PROJECT / "examples" / "orders_app"
# What belongs to this project's own installation.
_OURS = re.compile(r"(?i)(_*editable_.*kourou|kourou)")

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Run a command to its good end; what it has printed."""
    environ = {key: text for key, text in os.environ.items() if not key.startswith(("PYTHON", "PYTEST"))}
    ran = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**environ, "PYTHONDONTWRITEBYTECODE": "1", **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def build_wheel(folder: Path) -> Path:
    """The wheel, made without the network where the build backend is installed."""
    offline = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    run(*pip, *offline, "--wheel-dir", folder, PROJECT, cwd=folder)
    (wheel,) = folder.glob("kourou-*.whl")
    return wheel


def fresh_environment(folder: Path, wheel: Path) -> Path:
    """An environment that has Kourou from the wheel, and of ours only what it depends on; its Python."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    (site,) = folder.glob("lib/python*/site-packages")
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if not _OURS.match(package.name):
            (site / package.name).symlink_to(package)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    run(*pip, "--disable-pip-version-check", "--no-deps", "--no-index", wheel, cwd=folder)
    return python


def test_its_suite_passes_with_an_installed_wheel(tmp_path: Path) -> None:
    python = fresh_environment(tmp_path / "venv", build_wheel(tmp_path))
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
