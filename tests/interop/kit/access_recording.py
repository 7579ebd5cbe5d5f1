"""Access recording: what Apache's brokers answer, in tests/golden/access-<version>.json.

`calls` are the refusals of access_answers.py (null: passed on), `always` those of identities that are refused
whatever they ask; `administration` are the answers to the steps of access_administration.py. To record again:

    python -m tests.interop.kit.access_recording
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.interop.kit import apache
from tests.interop.kit.access_accounts import IDENTITIES
from tests.interop.kit.access_administration import administration_answers
from tests.interop.kit.access_answers import PASSED, Answer, Answers, all_answers, refusals
from tests.interop.kit.access_servers import AUTH, PLAIN, create_accounts, launch_with_accounts

_GOLDEN: Final = Path(__file__).parents[2] / "golden"


def recorded(version: str) -> Answers:
    """What Apache's broker of a version answered to the calls; other answers than refusals are PASSED."""
    raw = _recording(version)
    always = {name: Answer(*answer) for name, answer in raw["always"].items()}
    return {
        call: {
            **{name: Answer(*answer) if answer else PASSED for name, answer in by_identity.items()},
            **always,
        }
        for call, by_identity in raw["calls"].items()
    }


def recorded_administration(version: str) -> dict[str, list[Any]]:
    """What Apache's broker of a version answered to the steps of administration."""
    steps: dict[str, list[Any]] = _recording(version)["administration"]
    return steps


def _recording(version: str) -> Any:
    return json.loads(_golden(version).read_text())


def _golden(version: str) -> Path:
    return _GOLDEN / f"access-{version}.json"


def record(version: str, work_dir: Path) -> dict[str, Any]:
    """Start Apache's broker of a version and ask it everything."""
    with (
        apache.start_namesrv(version, work_dir) as namesrv,
        launch_with_accounts(version, version, work_dir, [namesrv.address]) as broker,
    ):
        broker.wait_ready()
        create_accounts(broker.address, version)
        administration = administration_answers(broker.address, version)
        answers = refusals(all_answers(broker.address))
    # Without a valid signature every call gets the same answer.
    first = next(iter(answers.values()))
    always = {
        name: [first[name].code, first[name].remark]
        for name in (identity.name for identity in IDENTITIES)
        if first[name] != PASSED and all(answer[name] == first[name] for answer in answers.values())
    }
    calls = {
        call: {
            name: None if answer == PASSED else [answer.code, answer.remark]
            for name, answer in by_identity.items()
            if name not in always
        }
        for call, by_identity in answers.items()
    }
    server = f"Apache RocketMQ {version}"
    return {"server": server, "always": always, "calls": calls, "administration": administration}


def _text(recording: dict[str, Any]) -> str:
    """One line for each call, step and identity."""
    parts = [
        f" {json.dumps(part)}: " + "{\n" + ",\n".join(_line(*item) for item in values.items()) + "\n }"
        for part, values in recording.items()
        if isinstance(values, dict)
    ]
    return "{\n" + ",\n".join([f' "server": {json.dumps(recording["server"])}', *parts]) + "\n}\n"


def _line(name: str, value: Any) -> str:
    return f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}"


def main() -> None:
    """Record the answers of both versions, or of those that are named."""
    for version in sys.argv[1:] or (PLAIN, AUTH):
        with tempfile.TemporaryDirectory() as work_dir:
            _golden(version).write_text(_text(record(version, Path(work_dir))))


if __name__ == "__main__":
    main()
