"""fastjson's dialect: what the parser takes, what it refuses and where, what the writer gives."""

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.fastjson import MAX_NESTING, ObjectKey, parse, reference, resolve, write

# fastjson 1.2.69 and 1.2.83 write a backslash before special characters, and integer keys as indexes.
REF_ROOT = {"list": [{"a.b": 1}, 7], "m": {"x[0]": 2, "plain": 3}, "%RETRY%x": {"3": 4}}


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("{}", {}),
        ("[]", []),
        ("{0:'a',-1:\"b\"}", {"0": "a", "-1": "b"}),
        ("{a:1,_b$.c-d:[true,false,null]}", {"a": 1, "_b$.c-d": [True, False, None]}),
        ("\ufeff{}\n", {}),
        (" \t\r\n\f\b[ 1 , 2 ] ", [1, 2]),
        ("[1,-2,1.5,-2e3,1E-2,007]", [1, -2, 1.5, -2000.0, 0.01, 7]),
        ("[NaN,undefined]", [None, None]),
        ('{"a":1,"a":2}', {"a": 2}),
        ('"tab\there"', "tab\there"),
        (r'"\"\\\/\b\f\n\r\t\v\0\x41\u4e2d"', '"\\/\b\f\n\r\t\v\0A中'),
        (r"'it\'s \"fine\"'", 'it\'s "fine"'),
        (r'"\ud83d\ude00"', "😀"),
        (r'"\ud83d alone"', "\ufffd alone"),
        ('{"}":"]","[":"{"}', {"}": "]", "[": "{"}),
    ],
)
def test_reads_what_fastjson_reads(text: str, tree: object) -> None:
    assert parse(text) == tree
    assert parse(text.encode()) == tree


def test_reads_objects_as_keys_however_they_are_laid_out() -> None:
    compact = parse('{{"brokerName":"b","queueId":0,"topic":"T"}:5}')
    pretty = parse('{\n\t{\n\t\t"topic" : "T",\n\t\t"queueId" : 0,\n\t\t"brokerName" : "b"\n\t} : 5\n}\n')

    assert compact == pretty == {ObjectKey.of({"topic": "T", "queueId": 0, "brokerName": "b"}): 5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at character 0: expected a value, the text ends here"),
        ("  ", "at character 2: expected a value, the text ends here"),
        ("{", "at character 1: expected a key, the text ends here"),
        ('{"a" 1}', "at character 5: expected ':' after a key, got '1}'"),
        ('{"a":}', "at character 5: expected a value, got '}'"),
        ('{"a":1 "b"', "at character 7: expected ',' or '}' after a value, got '\"b\"'"),
        ('{"a":1,}', "at character 7: expected a key, got '}'"),
        ("[1,]", "at character 3: expected a value, got ']'"),
        ("[1 2]", "at character 3: expected ',' or ']' after a value, got '2]'"),
        ("{} {}", "at character 3: expected the end of the text, got '{}'"),
        ("nil", "at character 0: expected a value, got 'nil'"),
        ('["abc', "at character 5: expected the closing quote of a string, the text ends here"),
        (r'["ab\q"]', "at character 4: expected an escape such as \\n or \\u0041, got '\\\\q\"]'"),
        (r'"\u12"', "at character 1: expected an escape such as \\n or \\u0041, got '\\\\u12\"'"),
        ("{{a:[]}:1}", "expected a key object that holds plain values only"),
        ("{{{a:1}:1}:1}", "expected a key object that holds plain values only"),
        ("9" * 401, "at character 0: expected a number of at most 400 characters"),
    ],
)
def test_says_where_it_stopped_and_what_it_expected(text: str, message: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse(text)

    assert message in str(caught.value)


def test_bytes_that_are_not_utf8_are_refused_with_their_place() -> None:
    with pytest.raises(ProtocolError, match="at byte 2: expected UTF-8 text"):
        parse(b'["\xff"]')


@pytest.mark.parametrize("opening", ["[", '{"a":', "{", "{a:[", "[{a:"])
def test_deep_nesting_is_refused_and_does_not_exhaust_the_stack(opening: str) -> None:
    with pytest.raises(ProtocolError, match="levels of nesting"):
        parse(opening * 100_000)


def test_nesting_up_to_the_limit_is_read() -> None:
    assert parse("[" * MAX_NESTING + "]" * MAX_NESTING)
    with pytest.raises(ProtocolError, match="levels of nesting"):
        parse("[" * (MAX_NESTING + 1) + "]" * (MAX_NESTING + 1))


def test_writes_compactly_without_nulls() -> None:
    tree = {"b": [1, None, 1.0, True], "a": None, "c": {}, "d": [], "e": {"only": None}}

    assert write(tree) == b'{"b":[1,null,1.0,true],"c":{},"d":[],"e":{}}'


def test_writes_non_ascii_raw_and_control_characters_escaped() -> None:
    assert write('中/"\\\n\x01') == '"中/\\"\\\\\\n\\u0001"'.encode()


def test_writes_integer_keys_in_order_quoted_or_bare() -> None:
    tree = {2: "b", 10: "c", 0: "a"}

    assert write(tree) == b'{"0":"a","2":"b","10":"c"}'
    assert write(tree, bare_int_keys=True) == b'{0:"a",2:"b",10:"c"}'


def test_writes_object_keys_in_place() -> None:
    assert write({ObjectKey.of({"topic": "T", "queueId": 0}): 5}) == b'{{"queueId":0,"topic":"T"}:5}'


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$", REF_ROOT),
        ("$.list[1]", 7),
        (r"$.list[0].a\.b", 1),
        (r"$.\%RETRY\%x[3]", 4),
        (r"$.m.x\[0\]", 2),
        ("$.m['x[0]']", 2),
        ('$["m"]["plain"]', 3),
    ],
)
def test_a_ref_is_a_path_from_the_root(path: str, found: object) -> None:
    assert resolve(REF_ROOT, path) == found


@pytest.mark.parametrize(
    "path", ["", "..", "@", "$.nowhere", "$.list[2]", "$.list.name", "$list", "$.", "$["]
)
def test_a_ref_that_leads_nowhere_is_refused(path: str) -> None:
    with pytest.raises(ProtocolError, match=r"\$ref"):
        resolve({"list": [1]}, path)


def test_only_an_object_with_nothing_but_a_path_is_a_ref() -> None:
    assert reference({"$ref": "$.a"}) == "$.a"
    assert reference({"$ref": 1}) is None
    assert reference({"$ref": "$.a", "more": 1}) is None
    assert reference(["$ref"]) is None
