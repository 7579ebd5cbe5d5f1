"""The Java program of docs/quickstart.md runs as it stands against our servers, with both clients."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from kourou import Message, Producer
from kourou.testing import LocalCluster
from tests.interop.kit.artifacts import java_tool, resolve

pytestmark = pytest.mark.interop

DOCUMENT = Path(__file__).parents[2] / "docs" / "quickstart.md"


@pytest.mark.parametrize("jars", [pytest.param("client-4.9.8", marks=pytest.mark.nightly), "server-5.5.0"])
def test_the_java_program_of_the_quick_start(jars: str, tmp_path: Path) -> None:
    (program,) = re.findall(r"^```java\n(.*?)^```", DOCUMENT.read_text(), re.S | re.M)
    with LocalCluster() as mq:
        with Producer("shop", namesrv=mq.namesrv) as producer:
            producer.send(Message("Greetings", b"hello 1", tags="Hello", keys=["order-1"]))
        (tmp_path / "Hello.java").write_text(program.replace("127.0.0.1:9876", mq.namesrv))
        java = java_tool("java") or "java"
        ran = subprocess.run(
            [java, f"-Duser.home={tmp_path}", "-cp", f"{resolve(jars)}/*", "Hello.java"],
            cwd=tmp_path, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert sorted(line for line in ran.stdout.splitlines() if re.match("SEND_OK|order-", line)) == [
        "SEND_OK",
        "order-1 hello 1",
        "order-4 hello from Java",
    ]
