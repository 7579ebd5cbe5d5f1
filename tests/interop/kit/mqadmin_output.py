"""What mqadmin printed, in a form in which two servers can be compared.

Masked is only what must differ between two servers or two moments: addresses, rates and ages. Lists that
Apache prints in the order of a hash table are sorted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from tests.interop.kit.java_session import AdminResult

_STACK_LINE: Final = re.compile(r"^\s+(at |\.\.\. )")
# Part of the server's remark, and another one in 4.9.7 than in 5.5.0.
_HELP_ADDRESS: Final = re.compile(r"See https?://\S+ for further details\.")
_AFTER_VERSION: Final = re.compile(r"(?<= V\d_\d_\d ).*")
_FIGURE: Final = re.compile(r"\d+(\.\d+)?")
_MOMENTS: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?"), "TIME"),
    (re.compile(r"\b[0-9A-F]{32,56}\b"), "ID"),
    (re.compile(r"(?<=127\.0\.0\.1:)\d+"), "PORT"),
    (re.compile(r"\b1[6-9]\d{11}\b"), "MILLIS"),
    (re.compile(r"([Cc]ommitLog ?Offset[:=] *)\d+"), r"\1N"),
)
_BLANKS: Final = re.compile(r" {2,}")
_UNQUOTED_KEY: Final = re.compile(r"([{,]\s*)(\d+):")
_CONFIG_LINE: Final = re.compile(r"^(\w+) +=  (.*)$", re.MULTILINE)


def masked(result: AdminResult, masks: Mapping[str, str]) -> str:
    """Both streams and the exit status as one text, stack frames left out and every mask applied."""
    errors = [line for line in result.stderr.splitlines() if not _STACK_LINE.match(line)]
    text = "\n".join([result.stdout, "-- stderr", *errors, f"-- exit status {result.exit_status}"])
    text = _HELP_ADDRESS.sub("See URL for further details.", text)
    for found, mask in masks.items():
        text = text.replace(found, mask)
    return text


def without_moments(text: str) -> str:
    """Times, ids, ports of clients and the places of records masked; blanks that align them reduced."""
    for pattern, mask in _MOMENTS:
        text = pattern.sub(mask, text)
    return _BLANKS.sub(" ", text)


def without_figures(text: str) -> str:
    """For clusterList: figures after the version masked, and the blanks that align them reduced to one."""
    return _BLANKS.sub(" ", _AFTER_VERSION.sub(lambda found: _FIGURE.sub("N", found[0]), text))


def sorted_lines(text: str) -> list[str]:
    """For topicList: one name per line, in the order of Apache's hash table."""
    return sorted(text.splitlines())


def route(stdout: str) -> dict[str, Any]:
    """The JSON of topicRoute, whose numeric keys fastjson leaves unquoted; lists sorted by broker name."""
    parsed: dict[str, Any] = json.loads(_UNQUOTED_KEY.sub(r'\1"\2":', stdout))
    for key in ("queueDatas", "brokerDatas"):
        parsed[key].sort(key=lambda item: item["brokerName"])
    return parsed


def permissions(stdout: str) -> dict[str, int]:
    """The permission per broker name in the JSON of topicRoute."""
    return {queue["brokerName"]: queue["perm"] for queue in route(stdout)["queueDatas"]}


def configuration(stdout: str) -> dict[str, str]:
    """The keys and values that getNamesrvConfig prints."""
    return dict(_CONFIG_LINE.findall(stdout))


def allocation(stdout: str) -> dict[str, set[tuple[str, int]]]:
    """The queues per client address in the JSON of allocateMQ, as broker name and queue id."""
    result: dict[str, list[dict[str, Any]]] = json.loads(stdout)["result"]
    return {
        address: {(queue["brokerName"], queue["queueId"]) for queue in queues}
        for address, queues in result.items()
    }
