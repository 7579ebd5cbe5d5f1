"""The words of an SQL92 filter: keywords, names, literals, signs.

Keywords are in any case, names are not. Between words there may be blanks, tabs, line ends, form
feeds, `/* … */`, and `-- …` up to the end of the line; where no line ends, `--` is two minus signs.
Whole numbers have no leading zeros and may end in L.
Not here: how words go together (parser.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from kourou.errors import FilterSyntaxError

KEYWORDS: Final = frozenset("NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH ENDSWITH".split())
"""The last three came with 5.x: 4.9 takes them for names of properties."""

NAME: Final = "name"
TEXT: Final = "text"
INTEGER: Final = "whole number"
FLOAT: Final = "number"
END: Final = "end"


class Token(NamedTuple):
    """One word. `kind` is a keyword in capitals, a sign, or one of the constants here."""

    kind: str
    text: str
    position: int

    @property
    def end(self) -> int:
        """The position behind it."""
        return self.position + len(self.text)


# A pattern for each kind of word, the longest first where one begins another. None backtracks far.
_WORD: Final = re.compile(
    r"""(?P<word>[A-Za-z_$][A-Za-z0-9_$]*)
      | (?P<text>'[^']*'(?:'[^']*')*)
      | (?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
      | (?P<integer>0|[1-9][0-9]*[lL]?)
      | (?P<sign><>|>=|<=|[=<>(),+-])
    """,
    re.VERBOSE,
)
_BLANKS: Final = re.compile(r"[ \t\n\r\f]+")
_LINE: Final = re.compile(r"[^\r\n]*")
_KINDS: Final = {"text": TEXT, "float": FLOAT, "integer": INTEGER}
_INSTEAD: Final = {
    "!=": "write <>",
    "==": "write =",
    "&&": "write AND",
    "||": "write OR",
    '"': "text is in single quotes",
    "`": "names have no quotes",
    "%": "there is no arithmetic",
    "*": "there is no arithmetic",
    "/": "there is no arithmetic",
    ";": "nothing may follow the expression",
}


def tokenize(expression: str) -> Iterator[Token]:
    """One word of `expression` after the other, at last END. FilterSyntaxError for what is no word."""
    last_line_end = max(expression.rfind("\n"), expression.rfind("\r"))
    position = _skip_blanks(expression, 0, last_line_end)
    while position < len(expression):
        found = _WORD.match(expression, position)
        if found is None or found.lastgroup is None:
            raise _no_word(expression, position)
        yield Token(_kind(found.lastgroup, found.group()), found.group(), position)
        position = _skip_blanks(expression, found.end(), last_line_end)
    yield Token(END, "", len(expression))


def _skip_blanks(expression: str, position: int, last_line_end: int) -> int:
    """Behind the blanks and comments at `position`."""
    while True:
        blanks = _BLANKS.match(expression, position)
        position = position if blanks is None else blanks.end()
        if expression.startswith("/*", position):
            position = _comment_end(expression, position)
        elif expression.startswith("--", position) and position < last_line_end:
            line = _LINE.match(expression, position)
            position = len(expression) if line is None else line.end()
        else:
            return position


def _kind(group: str, text: str) -> str:
    if group == "sign":
        return text
    if group == "word":
        # No keyword is longer; a name of a whole kilobyte need not be copied to find that out.
        upper = text.upper() if len(text) <= 10 else ""
        return upper if upper in KEYWORDS else NAME
    return _KINDS[group]


def _comment_end(expression: str, position: int) -> int:
    end = expression.find("*/", position + 2)
    if end < 0:
        raise FilterSyntaxError(
            "unterminated comment", position, piece_at(expression, position), "expected */"
        )
    return end + 2


def _no_word(expression: str, position: int) -> FilterSyntaxError:
    piece = piece_at(expression, position)
    if piece.startswith("'"):
        return FilterSyntaxError(
            "unterminated string literal", position, piece, "expected '; a quote inside is written ''"
        )
    hint = _INSTEAD.get(piece[:2]) or _INSTEAD.get(piece[:1]) or ""
    if not hint and piece[0].isalpha():
        hint = "names have the letters A to Z, digits, _ and $"
    return FilterSyntaxError(f"unexpected character {piece[0]!r}", position, piece, hint)


def piece_at(expression: str, position: int, length: int = 20) -> str:
    """A few characters for a message, without what follows a line end."""
    return expression[position : position + length].partition("\n")[0]
