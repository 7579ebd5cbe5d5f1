"""Text with a form of its own: what passes, and what an error says."""

from __future__ import annotations

import pytest

from kourou.config import checks


@pytest.mark.parametrize(
    "text", ["", "127.0.0.1:9876", "a:1;b:2", "a:1, b:2;", "[::1]:9876", "ns-1.example.com:65535"]
)
def test_addresses_that_are(text: str) -> None:
    assert checks.addresses(text) is None


@pytest.mark.parametrize("text", ["127.0.0.1", "a:b", "a:70000", "::1:9876", "a:1;b", "a b:1", ":9876", "a:"])
def test_addresses_that_are_not(text: str) -> None:
    assert "host:port" in (checks.addresses(text) or "")


@pytest.mark.parametrize(
    ("text", "fits"), [("04", True), ("4;16", True), ("", False), ("24", False), ("4,5", False)]
)
def test_hours(text: str, fits: bool) -> None:
    assert (checks.hours(text) is None) is fits


@pytest.mark.parametrize(("text", "fits"), [("1s 5M  2h 1d", True), ("", False), ("1x", False), ("s", False)])
def test_delay_levels(text: str, fits: bool) -> None:
    assert (checks.delay_levels(text) is None) is fits


@pytest.mark.parametrize(("text", "fits"), [("/a", True), ("/a,/b", True), ("", False), ("/a,,/b", False)])
def test_paths(text: str, fits: bool) -> None:
    assert (checks.paths(text) is None) is fits


@pytest.mark.parametrize(
    ("text", "fits"),
    [("broker-a", True), ("host.example.com", True), ("", False), ("a b", False), ("x" * 128, False)],
)
def test_names(text: str, fits: bool) -> None:
    assert (checks.name(text) is None) is fits
