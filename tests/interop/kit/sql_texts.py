"""SQL92 expressions made at random, as text, and what messages carry: numbers of every kind, nearly, or none.

conditions   what people write; most are filters
expressions  whatever the grammar allows; most do not pass what is checked beyond it
garbage      words of the language, in any order
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hypothesis import strategies as st

Texts = st.SearchStrategy[str]

NAMES: Final = ("a", "b", "c")
"""The properties that expressions ask for."""

_VALUES: Final = (
    *("5", "+5", "05", " 5", "-5", "7.5", "1.0", "1e3", "5f", "5.5d", "0x1p2", ".5", "5.", "5e"),
    *("0.0", "-0.0", "NaN", "Infinity", "-", "１", "1_0"),
    *("2147483647", "2147483648", "-2147483648", "3000000000"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *("x", "xyz", "it's", "true", "TRUE", "false", "中"),
)
_NUMBERS: Final = (
    *("0", "5", "7", "5L", "1000l", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808"),
    *("7.5", "5.", ".5", "1e3", "5E0", "1.5e-3", "0.0", "1e400", "007.5"),
)
_WORDS: Final = (
    *("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "LIKE"),
    *("a", "b", "a1", "$", "'x'", "'5'", "''", "'", "1", "0", "007", "1.5", ".5", "1.", "1e5", "5e", "2l"),
    *(
        "(",
        ")",
        ",",
        "=",
        "<>",
        "!=",
        ">",
        ">=",
        "<",
        "<=",
        "+",
        "-",
        "--",
        "/*",
        "*/",
        "\n",
        "!",
        "/",
        "%",
        "中",
    ),
)

_PLAIN: Final = ("0", "5", "7", "-5", "7.5", "true", "x", "xyz")
_IS_NOT: Final = st.sampled_from((" ", " NOT "))
_SEARCH: Final = st.sampled_from(("CONTAINS ", "STARTSWITH ", "endswith "))

PROPERTIES: Final = st.dictionaries(
    st.sampled_from(NAMES), st.one_of(st.sampled_from(_PLAIN), st.sampled_from(_VALUES)), max_size=3
)
"""What one message carries."""


def conditions() -> Texts:
    """What people write."""
    return st.recursive(_term(), _combined, max_leaves=6)


def _term() -> Texts:
    name, number, text = st.sampled_from(NAMES), _number(), _quoted()
    compared = st.sampled_from((">", ">=", " < ", "<= "))
    equal = st.sampled_from(("=", " <> ", " = "))
    truth = st.sampled_from(("TRUE", "FALSE"))
    return st.one_of(
        st.builds("{}{}{}".format, name, compared, st.one_of(number, name)),
        st.builds("{}{}{}".format, number, compared, st.one_of(number, name)),
        st.builds("{}{}{}".format, name, equal, st.one_of(text, number, name, truth)),
        st.builds("{}{}{}".format, st.one_of(text, number), equal, st.one_of(name, text, number)),
        st.builds("{}{}BETWEEN {}{}{}".format, name, _IS_NOT, number, _keyword("AND"), number),
        st.builds("{}{}IN ({})".format, name, _IS_NOT, _list()),
        st.builds("{}{}{}{}".format, st.one_of(name, text), _IS_NOT, _SEARCH, text),
        st.builds("{} IS{}NULL".format, st.one_of(name, number, text), _IS_NOT),
        st.one_of(name, truth, st.just("NULL")),
    )


def _combined(inner: Texts) -> Texts:
    grouped = inner.map("({})".format)
    return st.one_of(
        _joined(st.one_of(inner, grouped)),
        grouped.map("NOT {}".format),
        st.builds("{} {} {}".format, grouped, st.sampled_from(("=", "<>")), st.one_of(_primary(), grouped)),
        st.builds("{} IS{}NULL".format, grouped, _IS_NOT),
    )


def garbage() -> Texts:
    """Words of the language, in any order."""
    return st.tuples(st.sampled_from((" ", "", "\t")), st.lists(st.sampled_from(_WORDS), max_size=9)).map(
        lambda drawn: drawn[0].join(drawn[1])
    )


def expressions() -> Texts:
    """Whatever the grammar allows."""
    return st.recursive(_primary(), lambda inner: _joined(_equality(inner)), max_leaves=12)


def _keyword(word: str) -> Texts:
    return st.sampled_from((f" {word} ", f" {word.lower()} ", f"\n{word}\t"))


def _quoted() -> Texts:
    return st.sampled_from(("", *_VALUES)).map(lambda text: "'" + text.replace("'", "''") + "'")


def _number() -> Texts:
    sign = st.sampled_from(("", "", "-", "+", "- "))
    return st.builds("{}{}".format, sign, st.sampled_from((*"0567", "7.5", *_NUMBERS)))


def _list() -> Texts:
    return st.lists(_quoted(), min_size=1, max_size=4).map(", ".join)


def _primary() -> Texts:
    literals = st.one_of(_quoted(), st.sampled_from(_NUMBERS), st.sampled_from(("TRUE", "false", "NULL")))
    # Properties come up often enough to be compared with each other.
    return st.one_of(st.sampled_from(NAMES), st.sampled_from(NAMES), literals)


def _unary(inner: Texts) -> Texts:
    grouped = st.one_of(_primary(), _primary(), inner.map("({})".format))
    prefix = st.sampled_from(("", "", "", "", "", "NOT ", "-", "- ", "+", "NOT NOT ", "--", "NOT/**/"))
    return st.builds("{}{}".format, prefix, grouped)


def _comparison(inner: Texts) -> Texts:
    operand = _unary(inner)
    tails = st.one_of(
        st.builds("{}{}".format, st.sampled_from((">", ">=", " < ", "<= ")), operand),
        st.builds("{}BETWEEN {}{}{}".format, _IS_NOT, operand, _keyword("AND"), operand),
        st.builds("{}IN ({})".format, _IS_NOT, _list()),
        st.builds("{}{}{}".format, _IS_NOT, _SEARCH, _quoted()),
    )
    return _with_tails(operand, tails)


def _equality(inner: Texts) -> Texts:
    tails = st.one_of(
        st.builds("{}{}".format, st.sampled_from(("=", " <> ", " = ")), _comparison(inner)),
        st.sampled_from((" IS NULL", " is not null", " IS NOT NULL")),
    )
    return _with_tails(_comparison(inner), tails)


def _with_tails(operand: Texts, tails: Texts) -> Texts:
    return st.builds("{}{}".format, operand, st.lists(tails, max_size=2).map("".join))


def _joined(terms: Texts) -> Texts:
    return st.builds(
        _interleaved,
        st.lists(terms, min_size=1, max_size=3),
        st.lists(st.one_of(_keyword("AND"), _keyword("OR")), min_size=2, max_size=2),
    )


def _interleaved(terms: Sequence[str], links: Sequence[str]) -> str:
    return terms[0] + "".join(link + term for link, term in zip(links, terms[1:], strict=False))
