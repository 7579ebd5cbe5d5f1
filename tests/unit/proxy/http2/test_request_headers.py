"""Heads of calls: what HTTP/2 and gRPC demand of header fields."""

from __future__ import annotations

import pytest

from kourou.proxy.http2.call import GrpcCode
from kourou.proxy.http2.messages import CallError
from kourou.proxy.http2.request_headers import (
    HttpStatusError,
    MalformedRequestError,
    read_request_head,
    read_timeout_s,
)

GOOD = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/s/m"),
    ("content-type", "application/grpc+proto"),
]


def read(*more: tuple[str, str], without: str = "") -> dict[str, str]:
    fields = [field for field in GOOD if field[0] != without]
    return read_request_head([*fields, *more], 2_000).metadata


def test_values_of_a_repeated_name_are_joined() -> None:
    for _ in range(2):  # the second time the names are known
        assert read(("x", "a"), ("y", "b"), ("x", "c")) == {
            "content-type": "application/grpc+proto",
            "x": "a,c",
            "y": "b",
        }
        assert read(("x", "a"), ("y", "b"))["x"] == "a"


@pytest.mark.parametrize(
    ("more", "without", "words"),
    [
        ([], ":method", "the pseudo header :method is missing"),
        ([], ":path", "the pseudo header :path is missing"),
        ([], ":scheme", "the pseudo header :scheme is missing"),
        ([(":path", "/t/n")], "", "the pseudo header :path is repeated"),
        ([(":authority", "x")], "", "the pseudo header :authority follows other headers"),
        ([(":status", "200")], "", ":status is no pseudo header of a request"),
        ([("connection", "close")], "", "the header connection does not exist in HTTP/2"),
        ([("transfer-encoding", "chunked")], "", "does not exist in HTTP/2"),
        ([("te", "gzip")], "", "te is not trailers"),
    ],
)
def test_malformed_requests(more: list[tuple[str, str]], without: str, words: str) -> None:
    for _ in range(2):
        with pytest.raises(MalformedRequestError, match=words):
            read(*more, without=without)


def test_an_empty_path_is_malformed() -> None:
    with pytest.raises(MalformedRequestError, match="the pseudo header :path is empty"):
        read_request_head([*GOOD[:2], (":path", ""), *GOOD[3:]], 2_000)


def test_requests_of_others_get_a_status_of_http() -> None:
    with pytest.raises(HttpStatusError) as wrong_type:
        read(("content-type", "text/html"), without="content-type")
    assert wrong_type.value.status == 415
    with pytest.raises(HttpStatusError):
        read(("content-type", "application/grpc-web"), without="content-type")
    with pytest.raises(HttpStatusError) as wrong_method:
        read_request_head([(":method", "GET"), *GOOD[1:]], 2_000)
    assert wrong_method.value.status == 405


def test_a_list_of_headers_has_a_limit() -> None:
    with pytest.raises(CallError, match="headers of .* bytes; at most 2000 are allowed") as error:
        read(("x", "v" * 1_900))
    assert error.value.code is GrpcCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1H", 3600), ("2M", 120), ("3S", 3), ("4m", 0.004), ("5u", 5e-6), ("99999999n", 0.1)],
)
def test_timeouts(text: str, seconds: float) -> None:
    assert read_timeout_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "S", "3", "3s", "-1S", "1.5S", "123456789S", "٣S"])
def test_timeouts_that_are_none(text: str) -> None:
    with pytest.raises(CallError, match="is not up to 8 digits and a unit"):
        read_timeout_s(text)
