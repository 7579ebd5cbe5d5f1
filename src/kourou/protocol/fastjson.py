"""fastjson's dialect of JSON: text to plain trees and back.

Apache RocketMQ writes its bodies and files with fastjson, which leaves JSON in a few places:

    {0:"a"}                           integer map keys without quotes
    {{"queueId":0,"topic":"T"}:5}     an object as a map key
    {"$ref":"$.list[0]"}              an object met a second time is named by its path
    {'a':1,b:2}                       single quotes and bare names, when reading

A tree is made of dict, list, str, int, float, bool and None. `parse` gives every map key as
text, except that an object used as a key becomes an `ObjectKey`. `write` leaves out nulls and
adds no space, because the Go client's parsers cannot skip any.
Not here: what the trees mean (the shapes in bodies/).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn, TypeAlias

import msgspec

from kourou.errors import ProtocolError

MAX_NESTING: Final = 64
"""The deepest body of RocketMQ nests 7 levels; far below Python's own limit on recursion."""

MAX_NUMBER_CHARS: Final = 400
"""Longer than any double in plain notation; converting longer digits takes more than linear time."""

Scalar: TypeAlias = str | int | float | bool | None
Tree: TypeAlias = Any

# One match is one token, spaces before it included. A string without escapes is a token; of any
# other only the opening quote is. The last two make sure that something always matches.
_TOKEN: Final = re.compile(
    r"""[ \t\r\n\f\b]*(?:
        (?P<mark>[{}\[\]:,])
      | "(?P<plain>[^"\\]*)"
      | (?P<float>-?[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+))
      | (?P<int>-?[0-9]+)
      | (?P<word>[A-Za-z_$][\w$.-]*)
      | (?P<quote>["'])
      | (?P<end>\Z)
      | (?P<other>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_CHUNK: Final = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_HEX: Final = {"u": re.compile(r"[0-9a-fA-F]{4}"), "x": re.compile(r"[0-9a-fA-F]{2}")}
_ESCAPES: Final = {
    '"': '"',
    "'": "'",
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "0": "\0",
}
# fastjson reads the last two as null.
_WORDS: Final[dict[str, Scalar]] = {
    "true": True,
    "false": False,
    "null": None,
    "undefined": None,
    "NaN": None,
}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_REF_STEP: Final = re.compile(
    r"""\.(?P<name>(?:\\.|[^.\[\\])+)|\[(?P<index>[0-9]{1,9})\]|\[(?P<quote>["'])(?P<key>.*?)(?P=quote)\]"""
)


# Strings without braces and escapes, and what is between them; possessive, so that nothing is tried twice.
_PLAIN_STRINGS: Final = re.compile(rb'(?:[^"]*+"[^"\\{}]*+")*+[^"]*+')
_KEY_OBJECT: Final = re.compile(rb"\{[^{}]*+\}(?=:)")


class KeyText(str):
    """A map key in its final form, written without quotes."""

    __slots__ = ()


class ObjectKey(tuple[tuple[str, Scalar], ...]):
    """An object that stands as a map key: its names and values, in order of name."""

    __slots__ = ()

    @classmethod
    def of(cls, fields: Mapping[str, Scalar]) -> ObjectKey:
        """Freeze `fields`, so that equal objects are equal keys whatever their order."""
        return cls(sorted(fields.items(), key=lambda item: item[0]))


def parse(raw: bytes | str) -> Tree:
    """Read one value in fastjson's dialect, in one pass.

    Raises ProtocolError with the position and what was expected there.
    """
    text = _text(raw) if isinstance(raw, bytes) else raw
    return _Parser(text.removeprefix("\ufeff")).document()


def with_text_keys(raw: bytes) -> bytes | None:
    """`raw` with the objects that are map keys as text, each with the JSON of the object: strict JSON, which
    costs a tenth of `parse`. None if there are none, or a string has a brace or an escape."""
    if b"}:" not in raw or _PLAIN_STRINGS.fullmatch(raw) is None:
        return None
    return _KEY_OBJECT.sub(_as_text, raw)


def _as_text(match: re.Match[bytes]) -> bytes:
    return b'"' + match[0].replace(b'"', b'\\"') + b'"'


def write(tree: Tree, *, bare_int_keys: bool = False) -> bytes:
    """Write `tree` compactly, nulls left out, non-ASCII as UTF-8.

    Integer keys come in order and quoted, which every client reads; `bare_int_keys` gives them as
    fastjson writes them, for callers that want Apache's own form.
    """
    pieces: list[str] = []
    _write_value(pieces.append, tree, bare_int_keys)
    return "".join(pieces).encode()


def reference(tree: Tree) -> str | None:
    """The path in `tree` if it is a `{"$ref": path}`, else None."""
    if isinstance(tree, dict) and len(tree) == 1:
        path = tree.get("$ref")
        return path if isinstance(path, str) else None
    return None


def resolve(root: Tree, path: str) -> Tree:
    """The node of `root` that the path of a `$ref` names, such as `$.list[0].name`."""
    node = root
    for step in _ref_steps(path):
        try:
            # An integer key of a map looks like an index: `$.brokerAddrs[0]`.
            node = node[str(step) if isinstance(node, dict) else step]
        except (LookupError, TypeError):
            raise ProtocolError(f"$ref {path[:200]!r} leads nowhere at {step!r:.60}") from None
    return node


def _ref_steps(path: str) -> Iterator[str | int]:
    if not path.startswith("$"):
        raise ProtocolError(f"$ref {path[:200]!r}: expected a path from the root, '$...'")
    position = 1
    while position < len(path):
        match = _REF_STEP.match(path, position)
        if match is None:
            raise ProtocolError(f"$ref {path[:200]!r}: expected '.name' or '[index]' at character {position}")
        name, index, _, key = match.groups()
        # fastjson puts a backslash before each special character of a name.
        yield int(index) if index else re.sub(r"\\(.)", r"\1", name or key)
        position = match.end()


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"at byte {error.start}: expected UTF-8 text ({error.reason})") from None


class _Parser:
    """Recursive descent over `text`; never goes back, so time is linear in its length."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._token_start = 0

    def document(self) -> Tree:
        value = self._value(1)
        if self._next()[0] != "end":
            self._fail("the end of the text")
        return value

    def _next(self) -> tuple[str, str]:
        """Kind and text of the next token."""
        match = _TOKEN.match(self._text, self._position)
        assert match is not None and match.lastgroup is not None  # the pattern matches anything
        self._token_start, self._position = self._position, match.end()
        return match.lastgroup, match[match.lastgroup]

    def _fail(self, expected: str) -> NoReturn:
        ahead = self._text[self._token_start :]
        found = ahead.lstrip(" \t\r\n\f\b")
        got = f"got {found[:12]!r}" if found else "the text ends here"
        position = self._token_start + len(ahead) - len(found)
        raise ProtocolError(f"at character {position}: expected {expected}, {got}")

    def _value(self, depth: int) -> Tree:
        kind, token = self._next()
        return self._value_from(kind, token, depth)

    def _value_from(self, kind: str, token: str, depth: int) -> Tree:
        if kind == "plain":
            return token
        if kind == "mark" and token in "{[":
            if depth > MAX_NESTING:
                self._fail(f"at most {MAX_NESTING} levels of nesting")
            return self._object(depth) if token == "{" else self._array(depth)
        if kind == "quote":
            return self._string(token)
        return self._number_or_word(kind, token)

    def _number_or_word(self, kind: str, token: str) -> Scalar:
        if kind in ("int", "float"):
            if len(token) > MAX_NUMBER_CHARS:
                self._fail(f"a number of at most {MAX_NUMBER_CHARS} characters")
            return int(token) if kind == "int" else float(token)
        if kind != "word" or token not in _WORDS:
            self._fail("a value")
        return _WORDS[token]

    def _object(self, depth: int) -> dict[str | ObjectKey, Tree]:
        found: dict[str | ObjectKey, Tree] = {}
        kind, token = self._next()
        if token == "}" and kind == "mark":
            return found
        while True:
            key = self._key(kind, token, depth)
            if self._next() != ("mark", ":"):
                self._fail("':' after a key")
            found[key] = self._value(depth + 1)
            following = self._next()
            if following == ("mark", "}"):
                return found
            if following != ("mark", ","):
                self._fail("',' or '}' after a value")
            kind, token = self._next()

    def _array(self, depth: int) -> list[Tree]:
        found: list[Tree] = []
        kind, token = self._next()
        if token == "]" and kind == "mark":
            return found
        while True:
            found.append(self._value_from(kind, token, depth + 1))
            following = self._next()
            if following == ("mark", "]"):
                return found
            if following != ("mark", ","):
                self._fail("',' or ']' after a value")
            kind, token = self._next()

    def _key(self, kind: str, token: str, depth: int) -> str | ObjectKey:
        if kind in ("plain", "int", "float", "word"):
            return token
        if kind == "quote":
            return self._string(token)
        if token != "{":
            self._fail("a key")
        fields = self._value_from(kind, token, depth + 1)
        if not all(map(_is_plain, fields.items())):
            self._fail("a key object that holds plain values only")
        return ObjectKey.of(fields)

    def _string(self, quote: str) -> str:
        chunks: list[str] = []
        while True:
            chunk = _CHUNK[quote].match(self._text, self._position)
            assert chunk is not None  # the pattern matches the empty text
            chunks.append(chunk.group())
            self._token_start, self._position = chunk.end(), chunk.end() + 1
            ending = self._text[chunk.end() : self._position]
            if ending == quote:
                return _joined(chunks)
            if not ending:
                self._fail("the closing quote of a string")
            chunks.append(self._escape())

    def _escape(self) -> str:
        kind = self._text[self._position : self._position + 1]
        self._position += 1
        if kind in _ESCAPES:
            return _ESCAPES[kind]
        digits = _HEX[kind].match(self._text, self._position) if kind in _HEX else None
        if digits is None:
            self._fail("an escape such as \\n or \\u0041")
        self._position = digits.end()
        return chr(int(digits.group(), 16))


def _is_plain(field: tuple[str | ObjectKey, Tree]) -> bool:
    """Whether a field may stand in a key object.

    RocketMQ's only one is the flat MessageQueue; hashing nested ones again at each level would
    take more than linear time.
    """
    return isinstance(field[0], str) and not isinstance(field[1], dict | list)


def _joined(chunks: list[str]) -> str:
    text = "".join(chunks)
    if len(chunks) > 1 and _SURROGATE.search(text):
        # Two \u escapes make one character; one alone is none and would not go back into UTF-8.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _write_value(put: Callable[[str], None], tree: Tree, bare_int_keys: bool) -> None:
    if isinstance(tree, dict):
        _write_object(put, tree, bare_int_keys)
    elif isinstance(tree, list):
        mark = "["
        for item in tree:
            put(mark)
            _write_value(put, item, bare_int_keys)
            mark = ","
        put("]" if tree else "[]")
    else:
        put(_scalar(tree))


def _write_object(put: Callable[[str], None], tree: dict[Any, Tree], bare_int_keys: bool) -> None:
    mark = "{"
    for key, value in _in_order(tree):
        if value is None:
            continue
        put(mark)
        put(_key_text(key, bare_int_keys))
        put(":")
        _write_value(put, value, bare_int_keys)
        mark = ","
    put("}" if mark == "," else "{}")


def _in_order(tree: dict[Any, Tree]) -> Iterable[tuple[Any, Tree]]:
    """The items, integer keys ascending: Java's hash maps hold small integers that way."""
    if tree and all(type(key) is int for key in tree):
        return sorted(tree.items(), key=lambda item: item[0])
    return tree.items()


def _key_text(key: object, bare_int_keys: bool) -> str:
    if isinstance(key, KeyText):
        return key
    if isinstance(key, ObjectKey):
        return write(dict(key)).decode()
    if isinstance(key, int):
        return str(key) if bare_int_keys else f'"{key}"'
    return _scalar(key)


def _scalar(value: object) -> str:
    return msgspec.json.encode(value).decode()
