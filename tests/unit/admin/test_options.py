"""Options of mqadmin: every spelling that Apache's tools take, and their words for each mistake."""

from __future__ import annotations

import pytest

from kourou.cli.admin.options import check_required, flag, one_of, parse, required, value
from kourou.cli.problems import UsageError

OPTIONS = (
    required("t", "topic", "the topic"),
    *one_of(value("b", "brokerAddr", "a broker"), value("c", "clusterName", "a cluster")),
    value("o", "offset", "a place"),
    value("qn", "totalQueueNum", "how many"),
    flag("l", "list", "as a list"),
)


@pytest.mark.parametrize(
    "words",
    [
        ["-t", "Orders"],
        ["-t=Orders"],
        ["-tOrders"],
        ["--topic", "Orders"],
        ["--topic=Orders"],
        ["-topic", "Orders"],
        ["--top", "Orders"],
        ["-t", " Orders "],
        ["left over", "-t", "Orders", "too"],
    ],
)
def test_every_spelling_means_the_same(words: list[str]) -> None:
    assert parse(OPTIONS, words).text("topic") == "Orders"


def test_values_flags_and_names_of_two_letters() -> None:
    given = parse(OPTIONS, ["-o", "-1", "-l", "-qn", "8"])
    assert (given.number("offset"), given.flag("list"), given.number("totalQueueNum")) == (-1, True, 8)
    assert given.get("topic") is None and not given.truth("topic")
    assert given.number("nothing", 3) == 3 and "list" in given


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["-t"], "Missing argument for option: t"),
        (["-t", "-l"], "Missing argument for option: t"),
        (["-x"], "Unrecognized option: -x"),
        (["--topik", "Orders"], "Unrecognized option: --topik; did you mean --topic?"),
        (["--to", "x"], "Ambiguous option: '--to'  (could be: 'topic', 'totalQueueNum')"),
        (["-b", "x", "-c", "y"], "The option 'c' was specified but an option from this group has already"),
    ],
)
def test_mistakes_are_reported_in_apaches_wording(words: list[str], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(OPTIONS, words)
    assert str(caught.value).startswith(problem)


def test_all_that_is_missing_is_reported_together() -> None:
    with pytest.raises(UsageError, match=r"Missing required options: t, \[-b a broker, -c a cluster\]"):
        check_required(OPTIONS, parse(OPTIONS, []))
    check_required(OPTIONS, parse(OPTIONS, ["-t", "x", "-c", "y"]))


def test_a_value_that_is_no_number_is_reported_with_its_option() -> None:
    with pytest.raises(UsageError, match="-o x: must be a whole number"):
        parse(OPTIONS, ["-o", "x"]).number("offset")
