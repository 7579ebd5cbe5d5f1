"""The grammar of SQL92 filters, and what Apache checks before a message is seen.

    or         := and (OR and)*
    and        := equality (AND equality)*
    equality   := comparison ('=' comparison | '<>' comparison | IS [NOT] NULL)*
    comparison := unary (('>' | '>=' | '<' | '<=') unary | [NOT] BETWEEN unary AND unary
                  | [NOT] IN '(' text (',' text)* ')' | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text)*
    unary      := ('+' | '-' | NOT)* primary
    primary    := text | number | TRUE | FALSE | NULL | name | '(' or ')'

NOT binds before all else, as in Apache: `NOT a = 'x'` compares `NOT a`; write `NOT (a = 'x')`.
Stricter than Apache on purpose: nothing may follow a complete expression (`a = 1 b` is no filter),
expressions have a greatest length, and nesting a greatest depth.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from kourou.errors import FilterSyntaxError
from kourou.protocol.filter.expressions import (
    MAX_HEIGHT,
    And,
    Compare,
    Comparison,
    Condition,
    Equal,
    Expression,
    Find,
    In,
    IsNull,
    Negative,
    Not,
    Number,
    NumberType,
    Or,
    Property,
    Search,
    Text,
    Truth,
)
from kourou.protocol.filter.java_numbers import MAX_INTEGER, MAX_LONG, compare_numbers
from kourou.protocol.filter.tokens import END, FLOAT, INTEGER, KEYWORDS, NAME, TEXT, Token, piece_at, tokenize
from kourou.wording import nearest

# Room for some thousand terms. Reading that much holds up everybody else for a tenth of a second.
MAX_EXPRESSION_CHARS: Final = 64 * 1024

_OR, _AND, _EQUALITY, _COMPARISON = range(1, 5)
_BINDING: Final = {
    "OR": _OR,
    "AND": _AND,
    **dict.fromkeys(("=", "<>", "IS"), _EQUALITY),
    **dict.fromkeys((">", ">=", "<", "<=", "BETWEEN", "IN", "NOT"), _COMPARISON),
    **dict.fromkeys(("CONTAINS", "STARTSWITH", "ENDSWITH"), _COMPARISON),
}
_TRUTHS: Final = {"TRUE": True, "FALSE": False, "NULL": None}
_AN_OPERATOR: Final = "AND, OR, =, <>, >, BETWEEN, IN, IS NULL, CONTAINS, or the end"
_AN_OPERAND: Final = "a property, a text in single quotes, a number, TRUE, FALSE or ("


class _Part(NamedTuple):
    """A piece of the expression: what it says, how high that is, and where it stands."""

    node: Expression
    height: int
    start: int
    end: int


def parse(expression: str) -> Expression:
    """What `expression` says: a Condition, or a bare Property. FilterSyntaxError tells what is wrong."""
    if len(expression) > MAX_EXPRESSION_CHARS:
        raise FilterSyntaxError(
            f"expression of {len(expression)} characters",
            MAX_EXPRESSION_CHARS,
            piece_at(expression, MAX_EXPRESSION_CHARS),
            f"the maximum is {MAX_EXPRESSION_CHARS}",
        )
    return _Parser(expression).parse()


class _Parser:
    """Operators by how tightly they bind. It calls itself for parentheses and tighter operators; that
    is counted, for each such call takes a few frames of the stack."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = tokenize(expression)
        self._before: Token | None = None
        self._token = next(self._tokens)
        self._depth = 0

    # -- tokens ----------------------------------------------------------------------------------

    def _take(self) -> Token:
        token = self._before = self._token
        # One word ahead is read, never two: what follows `--` at the end may be anything.
        self._token = token if token.kind == END else next(self._tokens)
        return token

    def _skip(self, kind: str) -> bool:
        if self._token.kind != kind:
            return False
        self._take()
        return True

    def _expect(self, kind: str, wanted: str) -> Token:
        if self._token.kind != kind:
            raise self._unexpected(wanted)
        return self._take()

    # -- grammar ---------------------------------------------------------------------------------

    def parse(self) -> Expression:
        part = self._operators(_OR)
        if self._token.kind != END and not self._is_comment():
            raise self._unexpected(_AN_OPERATOR)
        self._check_condition(part)
        return part.node

    def _is_comment(self) -> bool:
        """Whether `--` stands behind a whole expression: a comment, though its line has no end."""
        return self._expression.startswith("--", self._token.position)

    def _operators(self, loosest: int) -> _Part:
        """An operand and all operators behind it that bind at least as tightly as `loosest`."""
        self._depth += 1
        if self._depth > MAX_HEIGHT:
            raise self._too_deep(self._token.position)
        left = self._unary()
        # Once `=` was read, what is left of the next operator is no operand of `>` any more.
        tightest = _COMPARISON
        while loosest <= (binding := _BINDING.get(self._token.kind, 0)) <= tightest:
            left = self._operator(left, binding)
            tightest = binding
        self._depth -= 1
        return left

    def _operator(self, left: _Part, binding: int) -> _Part:
        if binding in (_AND, _OR):
            return self._chain(left, binding)
        if binding == _EQUALITY:
            return self._equality(left)
        if self._token.kind in _COMPARISONS:
            return self._comparison(left)
        return self._predicate(left)

    def _chain(self, left: _Part, binding: int) -> _Part:
        """Terms with the same word between them are one node, however many there are."""
        word = self._token.kind
        parts = [left]
        while self._skip(word):
            parts.append(self._operators(binding + 1))
        for part in parts:
            self._check_condition(part)
        operands = tuple(part.node for part in parts)
        return self._over(And(operands) if binding == _AND else Or(operands), *parts)

    def _equality(self, left: _Part) -> _Part:
        operator = self._take()
        if operator.kind == "IS":
            is_negated = self._skip("NOT")
            self._expect("NULL", "NULL or NOT NULL")
            return self._over(_negated(IsNull(left.node), is_negated), left)
        right = self._operators(_COMPARISON)
        self._check_equality(left, right)
        return self._over(_negated(Equal(left.node, right.node), operator.kind == "<>"), left, right)

    def _comparison(self, left: _Part) -> _Part:
        operator = self._take()
        right = self._unary()
        self._check_number(left, operator.kind)
        self._check_number(right, operator.kind)
        return self._over(Compare(_COMPARISONS[operator.kind], left.node, right.node), left, right)

    def _predicate(self, left: _Part) -> _Part:
        is_negated = self._skip("NOT")
        word = self._token.kind
        if self._skip("BETWEEN"):
            return self._between(left, is_negated)
        if self._skip("IN"):
            return self._in(left, is_negated)
        if word in _SEARCHES:
            self._take()
            return self._find(left, _SEARCHES[word], is_negated)
        raise self._unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH behind NOT")

    def _between(self, value: _Part, is_negated: bool) -> _Part:
        low = self._unary()
        self._expect("AND", "AND and the upper bound")
        high = self._unary()
        for part in (value, low, high):
            self._check_number(part, "BETWEEN")
        if is_negated:
            below = Compare(Comparison.LESS, value.node, low.node)
            above = Compare(Comparison.GREATER, value.node, high.node)
            return self._over(Or((below, above)), value, low, high, levels=2)
        self._check_bounds(low, high)
        at_least = Compare(Comparison.GREATER_OR_EQUAL, value.node, low.node)
        at_most = Compare(Comparison.LESS_OR_EQUAL, value.node, high.node)
        return self._over(And((at_least, at_most)), value, low, high, levels=2)

    def _in(self, left: _Part, is_negated: bool) -> _Part:
        if not isinstance(left.node, Property):
            raise self._refused(left, "IN needs a property on its left")
        self._expect("(", "( and texts in single quotes")
        values = {_unquoted(self._expect(TEXT, "a text in single quotes"))}
        while self._skip(","):
            values.add(_unquoted(self._expect(TEXT, "a text in single quotes")))
        self._expect(")", "a comma or )")
        return self._over(_negated(In(left.node.name, frozenset(values)), is_negated), left)

    def _find(self, left: _Part, search: Search, is_negated: bool) -> _Part:
        wanted = _unquoted(self._expect(TEXT, "a text in single quotes"))
        return self._over(Find(search, left.node, wanted, is_negated), left)

    def _unary(self) -> _Part:
        prefixes = []
        while self._token.kind in ("+", "-", "NOT"):
            prefixes.append(self._take())
            if len(prefixes) > MAX_HEIGHT:
                raise self._too_deep(prefixes[0].position)
        part = self._primary()
        for prefix in reversed(prefixes):
            if prefix.kind == "NOT":
                self._check_condition(part)
            node = {"+": part.node, "-": Negative(part.node), "NOT": Not(part.node)}[prefix.kind]
            part = self._over(node, part, start=prefix.position)
        return part

    def _primary(self) -> _Part:
        token = self._token
        if token.kind == "(":
            return self._parenthesised()
        node = self._leaf(token)
        if node is None:
            raise self._unexpected(_AN_OPERAND)
        self._take()
        return _Part(node, 1, token.position, token.end)

    def _parenthesised(self) -> _Part:
        opening = self._take()
        part = self._operators(_OR)
        closing = self._expect(")", "an operator or )")
        return part._replace(start=opening.position, end=closing.end)

    def _leaf(self, token: Token) -> Expression | None:
        if token.kind == NAME:
            return Property(token.text)
        if token.kind == TEXT:
            return Text(_unquoted(token))
        if token.kind in _TRUTHS:
            return Truth(_TRUTHS[token.kind])
        if token.kind == INTEGER:
            return self._integer(token)
        return self._float(token) if token.kind == FLOAT else None

    def _integer(self, token: Token) -> Number:
        digits = token.text.rstrip("lL")
        if len(digits) > 19 or int(digits) > MAX_LONG:
            raise FilterSyntaxError(
                "the number is too large", token.position, token.text[:40], f"{MAX_LONG} is the largest"
            )
        value = int(digits)
        # The L says nothing: a number that fits into 32 bits is one of 32 bits.
        return Number(value, NumberType.INTEGER if value <= MAX_INTEGER else NumberType.LONG)

    def _float(self, token: Token) -> Number:
        value = float(token.text)
        if 0 < value < math.inf:
            return Number(value, NumberType.DOUBLE)
        problem, hint = ("too small", "write 0 for zero") if value == 0 else ("too large", "")
        raise FilterSyntaxError(f"the number is {problem}", token.position, token.text[:40], hint)

    def _over(self, node: Expression, *parts: _Part, levels: int = 1, start: int | None = None) -> _Part:
        """A node over `parts`, up to the token that was read last."""
        height = levels + max(part.height for part in parts) + isinstance(node, Not)
        begin = parts[0].start if start is None else start
        if height > MAX_HEIGHT:
            raise self._too_deep(begin)
        return _Part(node, height, begin, self._before.end if self._before is not None else begin)

    # -- what Apache checks ----------------------------------------------------------------------

    def _check_condition(self, part: _Part) -> None:
        if not isinstance(part.node, Condition | Property):
            raise self._refused(part, "this is neither true nor false", "compare it with something")

    def _check_number(self, part: _Part, operator: str) -> None:
        if isinstance(part.node, Text | Condition):
            hint = "write numbers without quotes" if isinstance(part.node, Text) else ""
            raise self._refused(part, f"{operator} compares numbers and properties only", hint)

    def _check_equality(self, left: _Part, right: _Part) -> None:
        for part in (left, right):
            if part.node == Truth(None):
                raise self._refused(part, "nothing is equal to NULL", "write IS NULL or IS NOT NULL")
        if isinstance(left.node, Truth) and isinstance(right.node, Text | Number):
            raise self._refused(right, "a truth value cannot be compared with this")

    def _check_bounds(self, low: _Part, high: _Part) -> None:
        if isinstance(low.node, Number) and isinstance(high.node, Number):
            if compare_numbers(low.node.value, high.node.value) > 0:
                raise self._refused(low, "the lower bound is above the upper one", "swap them")

    # -- what is wrong ---------------------------------------------------------------------------

    def _refused(self, part: _Part, problem: str, hint: str = "") -> FilterSyntaxError:
        piece = piece_at(self._expression, part.start, min(part.end - part.start, 40))
        return FilterSyntaxError(problem, part.start, piece, hint)

    def _too_deep(self, position: int) -> FilterSyntaxError:
        return FilterSyntaxError(
            f"nested deeper than {MAX_HEIGHT}", position, piece_at(self._expression, position)
        )

    def _unexpected(self, wanted: str) -> FilterSyntaxError:
        token = self._token
        problem = "unexpected end" if token.kind == END else f"unexpected {token.text[:40]!r}"
        hint = _better(token, self._before)
        return FilterSyntaxError(problem, token.position, token.text[:40], hint or f"expected {wanted}")


_COMPARISONS: Final = {comparison.value: comparison for comparison in Comparison}
_SEARCHES: Final = {search.value: search for search in Search}


def _negated(condition: Condition, is_negated: bool) -> Condition:
    return Not(condition) if is_negated else condition


def _unquoted(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _better(token: Token, before: Token | None) -> str:
    """What the writer may have meant; empty if there is no saying."""
    word = token.text.upper()
    if word == "LIKE":
        return "there is no LIKE; write CONTAINS, STARTSWITH or ENDSWITH"
    if token.kind in ("+", "-"):
        return "there is no arithmetic"
    if token.kind == "(" and before is not None and before.kind == NAME:
        return "there are no functions"
    if token.kind == "=" and before is not None and before.kind == "=":
        return "write a single ="
    if token.kind in KEYWORDS:
        return ""
    # Long words are nobody's misspelling, and comparing them takes long.
    near = nearest(word, KEYWORDS, likeness=0.7) if len(word) <= 16 else None
    return f"did you mean {near}?" if near else ""
