"""Options of `kourou pipeline`: secrets come from the environment."""

from __future__ import annotations

import pytest

from kourou.cli.pipeline.options import parse_options
from kourou.cli.problems import UsageError


def test_references_to_the_environment() -> None:
    environ = {"KOUROU_SECRET_KEY": "the-secret", "A": "x"}
    options = parse_options(["secretKey=${KOUROU_SECRET_KEY}", "b=${A}-${A}", "c=$A {A}"], environ)
    assert options == {"secretKey": "the-secret", "b": "x-x", "c": "$A {A}"}


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(UsageError, match="secretKey: the environment variable KOUROU_SECRET_KEY is not set"):
        parse_options(["secretKey=${KOUROU_SECRET_KEY}"], {})
