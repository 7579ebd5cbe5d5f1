"""fastjson and the bodies: round trips, other dialects of the same tree, cut and random text."""

import json
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect as mi

from kourou.errors import ProtocolError
from kourou.protocol import bodies, fastjson
from kourou.protocol.bodies import decode_body, decode_register_broker, encode_body
from kourou.protocol.bodies.fitting import fit

LONG = st.integers(-(2**63), 2**63 - 1)
FLOAT = st.floats(allow_nan=False, allow_infinity=False)
# A lone half of a surrogate pair is no text, and a map with the one name $ref is no map.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(lambda text: text != "$ref")
SCALAR = TEXT | LONG | FLOAT | st.booleans()
OBJECT_KEY = st.dictionaries(TEXT, SCALAR, max_size=3).map(fastjson.ObjectKey.of)
TREE: st.SearchStrategy[Any] = st.recursive(
    SCALAR,
    lambda inner: (
        st.lists(inner | st.none(), max_size=4) | st.dictionaries(TEXT | OBJECT_KEY, inner, max_size=4)
    ),
    max_leaves=20,
)
SHAPES = sorted(
    (value for name in bodies.__all__ if isinstance(value := getattr(bodies, name), type)),
    key=lambda shape: shape.__name__,
)
STRUCTS = [
    shape
    for shape in SHAPES
    if issubclass(shape, msgspec.Struct)
    and shape is not bodies.Body
    and not shape.__struct_config__.array_like  # never a body of its own
]


def values(kind: mi.Type) -> st.SearchStrategy[Any]:
    """Any value of a field of `kind`."""
    match kind:
        case mi.Metadata():
            return values(kind.type)
        case mi.StructType():
            return st.builds(kind.cls, **{each.name: values(each.type) for each in kind.fields})
        case mi.DictType():
            return st.dictionaries(values(kind.key_type), values(kind.value_type), max_size=2)
        case mi.ListType():
            return st.lists(values(kind.item_type), max_size=2)
        case mi.UnionType():
            return st.one_of([values(each) for each in kind.types])
        case mi.EnumType():
            return st.sampled_from(list(kind.cls))
        case mi.IntType():
            return st.integers(kind.ge, kind.le)
        case mi.FloatType():
            return FLOAT
        case mi.BoolType():
            return st.booleans()
        case mi.NoneType():
            return st.none()
    return TEXT


BODY = st.sampled_from(STRUCTS).flatmap(lambda shape: values(mi.type_info(shape)))


@st.composite
def loosely_written(draw: st.DrawFn, tree: Any) -> str:
    """`tree` as text with spaces, other quotes and bare keys wherever fastjson takes them."""

    def space() -> str:
        return draw(st.sampled_from(["", "", " ", "\n\t", "\r\n"]))

    def text(value: str) -> str:
        quoted = json.dumps(value, ensure_ascii=draw(st.booleans()))
        if not draw(st.booleans()):
            return quoted
        return "'" + quoted[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"

    def key(value: Any) -> str:
        if isinstance(value, fastjson.ObjectKey):
            return loose(dict(value))
        bare = value.isascii() and (value.isalpha() or (value.isdigit() and value.isdecimal()))
        return value if bare and draw(st.booleans()) else text(value)

    def loose(value: Any) -> str:
        if isinstance(value, dict):
            items = [f"{space()}{key(k)}{space()}:{loose(v)}" for k, v in value.items()]
            return space() + "{" + ",".join(items) + space() + "}" + space()
        if isinstance(value, list):
            return space() + "[" + ",".join(map(loose, value)) + space() + "]" + space()
        return space() + (text(value) if isinstance(value, str) else json.dumps(value)) + space()

    return draw(st.sampled_from(["", "\ufeff"])) + loose(tree)


@given(TREE)
def test_what_is_written_is_read_back(tree: Any) -> None:
    assert fastjson.parse(fastjson.write(tree)) == tree


@given(st.data())
def test_the_same_tree_is_read_from_loose_text(data: st.DataObject) -> None:
    tree = data.draw(TREE)

    assert fastjson.parse(data.draw(loosely_written(tree))) == tree


@given(TREE)
def test_strict_json_is_read_as_others_read_it(tree: Any) -> None:
    strict = json.dumps(fastjson.parse(fastjson.write(tree)), skipkeys=True, default=str)

    assert fastjson.parse(strict) == json.loads(strict)


@given(st.lists(TREE, max_size=4), st.data())
def test_text_cut_short_anywhere_is_refused(tree: list[Any], data: st.DataObject) -> None:
    raw = fastjson.write(tree)
    cut = data.draw(st.integers(0, len(raw) - 1))

    with pytest.raises(ProtocolError):
        fastjson.parse(raw[:cut])


@given(st.dictionaries(LONG, TEXT, max_size=5))
def test_integer_keys_read_the_same_bare_or_quoted(table: dict[int, str]) -> None:
    quoted, bare = fastjson.write(table), fastjson.write(table, bare_int_keys=True)

    assert fastjson.parse(quoted) == fastjson.parse(bare) == {str(key): each for key, each in table.items()}
    assert decode_body(quoted, dict[int, str]) == decode_body(bare, dict[int, str]) == table


@given(BODY, st.booleans())
def test_every_body_comes_back_from_what_is_written(body: msgspec.Struct, bare_int_keys: bool) -> None:
    raw = encode_body(body, bare_int_keys=bare_int_keys)

    assert decode_body(raw, type(body)) == body
    assert fit(fastjson.parse(raw), type(body)) == body


@given(BODY)
def test_the_v4_form_reads_as_the_body_with_defaults_for_the_rest(body: msgspec.Struct) -> None:
    raw = encode_body(body, v4=True)

    assert encode_body(decode_body(raw, type(body)), v4=True) == raw


# Pieces that make text look like a body, so that chance goes deeper than the first character.
FRAGMENTS = st.sampled_from(
    [
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        '"',
        "'",
        "\\",
        "\\u",
        "0",
        "-",
        "1e9",
        "null",
        "true",
        '"$ref"',
        '"$"',
        '"$.a"',
    ]
    + [f'"{name}"' for name in ("table", "offsetTable", "topicList", "brokerAddrs", "a")]
    + ["{{", "}:", " ", "\n", "é", "\x00"]
)


@given(
    st.binary(max_size=64) | st.lists(FRAGMENTS, max_size=30).map(lambda each: "".join(each).encode()),
    st.sampled_from([*STRUCTS, dict[str, str], list[str], Any]),
)
def test_garbage_raises_nothing_but_protocol_errors(raw: bytes, shape: Any) -> None:
    try:
        decode_body(raw, shape)
    except ProtocolError as error:
        assert len(str(error)) < 1000


@given(TREE, st.sampled_from(STRUCTS))
def test_trees_of_another_shape_raise_nothing_but_protocol_errors(tree: Any, shape: Any) -> None:
    names = list(shape.__struct_encode_fields__)
    wrapped = {names[0]: tree, names[-1]: [tree]}
    try:
        decode_body(fastjson.write(wrapped), shape)
    except ProtocolError as error:
        assert len(str(error)) < 1000


@given(st.binary(max_size=64), st.binary(max_size=200), st.sampled_from([0, 407, 413, 479, 612]))
def test_a_damaged_packed_registration_raises_nothing_but_protocol_errors(
    garbage: bytes, inflated: bytes, version: int
) -> None:
    for raw in (garbage, zlib.compress(inflated)):
        try:
            decode_register_broker(raw, compressed=True, version=version)
        except ProtocolError as error:
            assert raw and str(error).startswith("compressed RegisterBrokerBody: ")
