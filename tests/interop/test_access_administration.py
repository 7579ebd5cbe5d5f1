"""Accounts are administered at our broker as at Apache's: the same steps, the same answers.

The steps are those of kit/access_administration.py: what mqadmin and dashboards send, and what is wrong.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest

from tests.interop.kit.access_administration import administration_answers
from tests.interop.kit.access_servers import AUTH, PLAIN
from tests.interop.kit.access_world import RULES, AccessWorld, ours, theirs

pytestmark = pytest.mark.interop

# What a response says that was a success, and nothing more.
_UNSET: Final = "not set any response code"
_REFUSED_HERE: Final = {
    PLAIN: re.compile(r"white broken"),
    AUTH: re.compile(
        r"(create|get) user of unknown (type|status)"
        r"|create acl (with (empty name|some unknown action)|of unknown policy type)"
    ),
}
"""Steps with words that RocketMQ takes for others or for nothing; ours refuses them."""
_MADE_BY_THEM: Final = {"typed", "stated", "Topic:", "Topic:D", "Topic:E"}
"""Users and resources of these steps."""


@pytest.mark.parametrize("rules", RULES)
def test_steps_of_administration_are_answered_alike(access_world: AccessWorld, rules: str) -> None:
    there = administration_answers(access_world[theirs(rules)].address, rules)
    here = administration_answers(access_world[ours(rules)].address, rules)
    differences = {
        step: (answer, here[step])
        for step, answer in there.items()
        if _comparable(answer) != _comparable(here[step]) and not _REFUSED_HERE[rules].fullmatch(step)
    }
    assert differences == {}


def _comparable(answer: list[Any]) -> str:
    code, remark, *content = answer
    # The text of an error that RocketMQ did not expect is Java's.
    unset = code == 1 or remark == _UNSET
    text = json.dumps([code, None if unset else remark, _kept(content)], sort_keys=True)
    # What was sent as secret is not sent back here. How often a file was written differs.
    return re.sub(r"secretKey=[^ ]+", "secretKey=***", re.sub(r"counter[^,}]*", "counter", text))


def _kept(value: Any) -> Any:
    """Without what steps made that are refused here."""
    if isinstance(value, list):
        return [_kept(one) for one in value if not _is_made_by_them(one)]
    if isinstance(value, dict):
        return {name: _kept(one) for name, one in value.items()}
    return value


def _is_made_by_them(value: Any) -> bool:
    return isinstance(value, dict) and not _MADE_BY_THEM.isdisjoint(
        (value.get("username"), value.get("resource"))
    )
