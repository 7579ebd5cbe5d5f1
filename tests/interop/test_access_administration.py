"""Accounts are administered at our broker as at Apache's: the same steps, the same answers.

The steps are those of kit/access_administration.py: what mqadmin and dashboards send, and what is wrong.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest

from tests.interop.kit.access_administration import administration_answers
from tests.interop.kit.access_recording import recorded_administration
from tests.interop.kit.access_servers import AUTH, PLAIN
from tests.interop.kit.access_world import RULES, AccessWorld, ours, theirs

pytestmark = pytest.mark.interop

# What a response says that was a success, and nothing more.
_UNSET: Final = "not set any response code"
_OTHERWISE: Final[dict[str, dict[str, str]]] = {PLAIN: {}, AUTH: {}}
"""Steps that are answered in another way, with the reason."""


@pytest.mark.parametrize("rules", RULES)
def test_steps_of_administration_are_answered_alike(access_world: AccessWorld, rules: str) -> None:
    there = administration_answers(access_world[theirs(rules)].address, rules)
    here = administration_answers(access_world[ours(rules)].address, rules)
    assert there == recorded_administration(rules)
    differences = {
        step: (answer, here[step])
        for step, answer in there.items()
        if _comparable(answer) != _comparable(here[step]) and step not in _OTHERWISE[rules]
    }
    assert differences == {}


def _comparable(answer: list[Any]) -> str:
    code, remark, *content = answer
    text = json.dumps([code, None if remark == _UNSET else remark, *content], sort_keys=True)
    # Whose file it is, and how often it was written.
    return re.sub(r"counter[^,]*,", "counter,", text)
