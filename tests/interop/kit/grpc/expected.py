"""The outcomes of scenarios.py at Apache's proxy, and where a client or our proxy has another."""

from __future__ import annotations

from typing import Any, Final

from tests.interop.kit.grpc.scenarios import Outcome

_FULL: Final = {"tag": "TagA", "keys": ["k1", "k2"], "properties": {"city": "Köln"}}
_BAD: Final = {"tag": "TagA", "keys": ["k1"], "properties": {"price": "12"}}
_ANY: Final = "…"


def _message(body: str, size: int, crc: int, attempt: int = 1, **more: object) -> Outcome:
    return {
        "body": body,
        "size": size,
        "crc": crc,
        "keys": [],
        "attempt": attempt,
        "isKnownId": True,
        **more,
    }


def _stored(**more: str) -> Outcome:
    """Properties that every stored message of a client for gRPC has, and others."""
    return {
        "BORN_TIMESTAMP": _ANY,
        "CLUSTER": _ANY,
        "MSG_REGION": "DefaultRegion",
        "PGROUP": _ANY,
        "TRACE_ON": "true",
        "UNIQ_KEY": _ANY,
        "__BORNHOST": _ANY,
        **more,
    }


def _stored_twice(**properties: str) -> list[Outcome]:
    return [
        {"body": body, "id": True, "sysFlag": 0, "properties": _stored(**properties)}
        for body in ("one", "two")
    ]


def _dead(body: str, reconsume_times: int, **properties: str) -> list[Outcome]:
    told = _stored(DELAY="0", ORIGIN_MESSAGE_ID=_ANY, WAIT="false", **properties)
    return [{"body": body, "reconsumeTimes": reconsume_times, "properties": told}]


_DEAD: Final = {
    "1ST_POP_TIME": _ANY,
    "ORIGIN_GROUP": "GROUP",
    "RETRY_TOPIC": "%RETRY%GROUP_TOPIC",
    "TAGS": "TagA",
    "price": "12",
}
_GROUPS: Final = ("alpha", "beta", "gamma", "größe")

_EXPECTED: Final[dict[str, Outcome]] = {
    "normal": {
        "messages": [
            _message("full", 4, 3766473888, **_FULL),
            _message("größer", 8, 4164294576, **_FULL),
            _message("large", 1_000_000, 2766582464),
            _message("plain", 5, 421552847),
        ],
        "topics": [True],
        "bornHosts": True,
        "left": [],
    },
    "invisible": {
        "ack": 20000,
        "ack again": 20000,
        "change": 20000,
        "change late": 20000,
        "again": {"changed": [2], "late": [2]},
        "ack late": 40013,
        "change after": 40013,
        "too short": 40011,
        "left": [],
    },
    "fifo": {
        "order": {name: [f"{name}-{number}" for number in range(4)] for name in _GROUPS},
        "attempts": {f"{name}-{number}": [1] for name in _GROUPS for number in range(4)},
        "queues": {"alpha": [1], "beta": [0], "gamma": [3], "größe": [3]},
    },
    "fifo_failure": {
        "calls": ["one", "two-bad", "two-bad", "three"],
        "dead": _dead("two-bad", 1, RETRY_TOPIC="TOPIC", __SHARDINGKEY="alpha"),
    },
    "retry": {
        "attempts": {"first-bad": [1, 2], "good": [1]},
        "messages": [
            _message("first-bad", 9, 3556063352, 1, **_BAD),
            _message("first-bad", 9, 3556063352, 2, **_BAD),
            _message("good", 4, 1820610194, **_BAD),
        ],
    },
    "dead_letter": {
        "attempts": {"always-bad": [1, 2], "good": [1]},
        "dead": _dead(
            "always-bad",
            3,
            **_DEAD,
        ),
    },
    "delay": {
        "recalled": True,
        "recalled again": 20000,
        "no handle": 50001,
        "messages": [_message("later", 5, 3959665225, tag="TagA"), _message("past", 4, 1343504775)],
        "early": [],
        "has delivery time": {"later": True, "past": True},
        "left": [],
    },
    "transaction": {
        "received": [("commit-1", "TagA", "12", 1), ("commit-2", "TagB", "13", 1)],
        "asked": ["commit-2", "rollback-2"],
    },
    "filters": {
        "tags": ["a1", "a2", "c1"],
        "sql": ["c1"],
        "sql tags": ["b1", "c1", "none"],
        "push": ["c1"],
    },
    "refusals": {
        "unknown topic": 40402,
        "system topic": 40002,
        "normal to fifo": 0,
        "fifo to normal": 0,
        "delay to normal": 0,
        "normal to delay": 0,
        "normal to transaction": 0,
        "too far": 40012,
        "empty body": 0,
        "too large": 0,
        "tag": 0,
        "large properties": 43101,
        "reserved property": 40007,
        "long message group": 40006,
        "subscription to nothing": 0,
    },
    "to_remoting": {
        "NORMAL": _stored_twice(KEYS="k1 k2", TAGS="TagA", city="Köln", price="12"),
        "FIFO": _stored_twice(KEYS="k1", __SHARDINGKEY="alpha"),
        "DELAY": _stored_twice(
            REAL_QID="0",
            REAL_TOPIC="TOPIC",
            TIMER_DELIVER_MS=_ANY,
            TIMER_DEQUEUE_MS=_ANY,
            TIMER_ENQUEUE_MS=_ANY,
            TIMER_OUT_MS=_ANY,
        ),
    },
    "from_remoting": {
        "messages": [
            _message(
                "full",
                4,
                3766473888,
                **{**_FULL, "properties": {"city": "Köln", "price": "12"}},
                isKnownId=False,
            ),
            _message("plain", 5, 421552847, isKnownId=False),
            _message(
                "sharded",
                7,
                3701798730,
                group="alpha",
                properties={"__SHARDINGKEY": "alpha"},
                isKnownId=False,
            ),
        ]
    },
    "compressed": {"messages": [_message("large", 100_006, 1799002220, isKnownId=False)]},
    "priority": {"priorities": {"p1": 1, "p2": 2, "p3": 3}},
}

_OF_CLIENT: Final[dict[tuple[str, str], dict[str, Any]]] = {
    # It keeps the handle of the first delivery, which the broker still knows.
    ("invisible", "go"): {"ack late": 20000},
    # These count attempts of ordered messages from 0 and from 1.
    ("fifo_failure", "go"): {"calls": ["one", "two-bad", "three"]},
    ("fifo_failure", "node"): {"calls": ["one", "two-bad", "three"]},
    # It looks into the handle itself.
    ("delay", "node"): {"no handle": 0},
    # These leave it to the proxy.
    ("refusals", "go"): {"empty body": 41302, "tag": 40004},
    ("refusals", "node"): {"empty body": 41302, "tag": 40004},
    # It raises an error without a code where a topic has no route, and asks for routes late.
    ("refusals", "python"): {"unknown topic": 0, "system topic": 0, "subscription to nothing": 20000},
    # Apache's proxy labels what is zlib as GZIP, which this client takes by its word.
    ("compressed", "node"): {"messages": []},
    # It has priorities for senders only.
    ("priority", "go"): {"priorities": {"p1": None, "p2": None, "p3": None}},
}
"""Where a client has another outcome at Apache's proxy, and why."""

_OF_OURS: Final[dict[tuple[str, str], dict[str, Any]]] = {
    # It says that no such handle can be, and not that the server has failed.
    ("delay", "java"): {"no handle": 40000},
    ("delay", "go"): {"no handle": 40000},
    ("delay", "python"): {"no handle": 40000},
    # It inflates bodies for all clients.
    ("compressed", "node"): _EXPECTED["compressed"],
    # Our broker makes the dead letter when the last attempt is over, without an attempt in between; its
    # origin is the topic, not the group's retry topic.
    ("dead_letter", "*"): {"dead": _dead("always-bad", 2, **{**_DEAD, "RETRY_TOPIC": "TOPIC"})},
}
"""Where a client (or `*`, all of them) has another outcome at our proxy, and why."""


def expected_at_apache(scenario: str, language: str) -> Outcome:
    """The outcome of a scenario at Apache's proxy."""
    return {**_EXPECTED[scenario], **_OF_CLIENT.get((scenario, language), {})}


def expected_at_ours(scenario: str, language: str) -> Outcome:
    """The outcome of a scenario at our proxy."""
    return {
        **expected_at_apache(scenario, language),
        **_OF_OURS.get((scenario, "*"), {}),
        **_OF_OURS.get((scenario, language), {}),
    }


def expected_before_apache(scenario: str, language: str) -> Outcome:
    """The outcome of a scenario at our proxy before Apache's broker, which makes the dead letters."""
    if scenario == "dead_letter":
        return expected_at_apache(scenario, language)
    return expected_at_ours(scenario, language)
