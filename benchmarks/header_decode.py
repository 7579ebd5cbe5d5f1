"""What it costs to read the headers of the hot path: a send (V2) and a pull, in both serializations.

Run as `python -m benchmarks.header_decode`. Each row is what a server does for one request: the head,
then the extFields into the typed header. The target is 3 microseconds for a JSON send header.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from statistics import median
from time import process_time

import msgspec

from kourou.protocol.codes import LanguageCode, RequestCode
from kourou.protocol.command import decode_ext, decode_head, ext_dict
from kourou.protocol.ext_fields import ext_fields_of
from kourou.protocol.header_binary import encode_binary_head
from kourou.protocol.header_json import encode_json_head
from kourou.protocol.headers import (
    CommandHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from kourou.protocol.versions import V5_3_3

ROUNDS = 15
HEADERS_PER_ROUND = 20_000

# Field for field what a Java client sends, with a property text of usual length.
SEND = SendMessageRequestHeaderV2(
    producer_group="PG_plain",
    topic="PlainTopic",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=2,
    sys_flag=0,
    born_timestamp=1794711764929,
    flag=0,
    properties="KEYS\x01order-10\x02UNIQ_KEY\x017F00000150805FFD2B2748C057C10016\x02WAIT\x01true\x02TAGS\x01TagA",
    broker_name="broker-a",
)
PULL = PullMessageRequestHeader(
    consumer_group="CG_plain",
    topic="PlainTopic",
    queue_id=2,
    queue_offset=1_000_000,
    max_msg_nums=32,
    sys_flag=3,
    commit_offset=999_968,
    suspend_timeout_millis=15_000,
    sub_version=1794711764929,
    expression_type="TAG",
    max_msg_bytes=2**31 - 1,
)


def microseconds(action: Callable[[], object]) -> float:
    """CPU time per call, over one round; waiting for a busy machine does not count."""
    start = process_time()
    for _ in range(HEADERS_PER_ROUND):
        action()
    return (process_time() - start) * 1e6 / HEADERS_PER_ROUND


def rows() -> list[tuple[str, Callable[[], object]]]:
    """What is measured, by name."""
    send_json, send_binary = _headers(RequestCode.SEND_MESSAGE_V2, SEND)
    pull_json, pull_binary = _headers(RequestCode.PULL_MESSAGE, PULL)
    return [
        ("nothing (cost of the loop)", lambda: None),
        (
            "send, JSON: head + typed",
            lambda: decode_ext(decode_head(0, send_json), SendMessageRequestHeaderV2),
        ),
        ("send, JSON: head alone", lambda: decode_head(0, send_json)),
        ("send, JSON: head + dict of texts", lambda: ext_dict(decode_head(0, send_json))),
        ("send, binary: head alone", lambda: decode_head(1, send_binary)),
        (
            "send, binary: head + typed",
            lambda: decode_ext(decode_head(1, send_binary), SendMessageRequestHeaderV2),
        ),
        ("pull, JSON: head + typed", lambda: decode_ext(decode_head(0, pull_json), PullMessageRequestHeader)),
        (
            "pull, binary: head + typed",
            lambda: decode_ext(decode_head(1, pull_binary), PullMessageRequestHeader),
        ),
    ]


def _headers(code: int, header: CommandHeader) -> tuple[bytes, bytes]:
    fields = ext_fields_of(header)
    java = int(LanguageCode.JAVA)
    return (
        encode_json_head(code, java, V5_3_3, 54, 0, None, fields),
        encode_binary_head(code, java, V5_3_3, 54, 0, None, fields),
    )


def main() -> None:
    """Print a table of microseconds per header."""
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}", end=", ")
    print(f"msgspec {msgspec.__version__}")
    print(f"{ROUNDS} rounds of {HEADERS_PER_ROUND} headers; CPU microseconds per header\n")
    print(f"{'':36}{'best':>8}{'median':>8}{'worst':>8}")
    # Rounds alternate between the rows, so that a slow moment of the machine hits all of them.
    rounds = [[microseconds(action) for _, action in rows()] for _ in range(ROUNDS)]
    for (name, _), results in zip(rows(), zip(*rounds, strict=True), strict=True):
        print(f"{name:36}{min(results):8.2f}{median(results):8.2f}{max(results):8.2f}")


if __name__ == "__main__":
    main()
