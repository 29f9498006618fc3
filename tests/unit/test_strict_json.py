"""The strict loader refuses each row of security.md's input table, and agrees with the usual parsers on all else."""

import json
import time

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from app.errors import ParseError
from app.protocol import strict_json

# The machine may be busy: a slow example is no fault.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
SCALARS = st.none() | st.booleans() | INT64 | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=30)


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


REFUSED = [
    ("empty", b"", "empty"),
    ("blank", b" \t\r\n", "empty"),
    ("not UTF-8", b'"\xff"', "not UTF-8 at byte 1"),
    ("overlong NUL", b'"\xc0\x80"', "not UTF-8"),
    ("surrogate in UTF-8", b'"\xed\xa0\x80"', "not UTF-8"),
    ("Latin-1", '"é"'.encode("latin-1"), "not UTF-8"),
    ("BOM", b"\xef\xbb\xbf{}", "byte order mark"),
    ("UTF-16", '{"a":1}'.encode("utf-16"), "UTF-8"),
    ("UTF-16 LE without BOM", '{"a":1}'.encode("utf-16-le"), "NUL"),
    ("UTF-32", '{"a":1}'.encode("utf-32-be"), "NUL"),
    ("NUL byte", b'"a\x00b"', "NUL"),
    ("NUL behind the document", b"{}\x00", "NUL"),
    ("escaped NUL", rb'{"a":"x\u0000y"}', "U+0000"),
    ("escaped NUL in a key", rb'{"\u0000":1}', "U+0000"),
    ("escaped NUL behind an escaped backslash", rb'"\\\u0000"', "U+0000"),
    ("escaped NUL behind a harmless one", rb'["\\u0000", "\u0000"]', "U+0000"),
    ("lone high surrogate", rb'"\ud800"', "lone surrogate"),
    ("lone low surrogate", rb'"\udc00"', "lone surrogate"),
    ("upper case surrogate", rb'"\uDFFF"', "lone surrogate"),
    ("surrogates in the wrong order", rb'"\udc00\ud800"', "lone surrogate"),
    ("surrogate in a key", rb'{"\ud83d":1}', "lone surrogate"),
    ("surrogate behind a pair", rb'"\ud83d\ude00\ud83d"', "lone surrogate"),
    ("NaN", b"NaN", "NaN"),
    ("Infinity", b'{"a":Infinity}', "Infinity"),
    ("-Infinity", b"[-Infinity]", "-Infinity"),
    ("1e999", b"1e999", "too large"),
    ("-1e999", b"-1e999", "too large"),
    ("1e100000", b'{"a":[1e100000]}', "too large"),
    ("2^63", b"9223372036854775808", "64-bit"),
    ("-2^63 - 1", b"-9223372036854775809", "64-bit"),
    ("20 digits", b"10000000000000000000", "64-bit"),
    ("5,000 digits", b"1" * 5000, "64-bit"),
    ("duplicate key", b'{"a":1,"a":2}', 'duplicate key "a"'),
    ("duplicate key with equal values", b'{"b":{"a":1,"c":2,"a":1}}', 'duplicate key "a"'),
    ("duplicate key by escape", rb'{"a":1,"\u0061":2}', 'duplicate key "a"'),
    ("duplicate long key", b'{"%b":1,"%b":2}' % (b"k" * 500, b"k" * 500), "kkk…".encode("ascii", "ignore").decode()),
    ("duplicate key that is a lone surrogate", rb'{"\ud800":1,"\ud800":2}', "duplicate key"),
    ("depth 65", nested(65), "64 levels"),
    ("depth 65 of objects", b'{"a":' * 65 + b"1" + b"}" * 65, "64 levels"),
    ("depth 100,000", nested(100_000), "64 levels"),
    ("never closed", b"[" * 100_000, "64 levels"),
    ("never closed objects", b'{"a":' * 100_000, "64 levels"),
    ("deep behind brackets in a string", b'["]]]]]]]]", ' + nested(64) + b"]", "64 levels"),
    ("deep behind an escaped quote", rb'["\"]]]]", ' + nested(64) + b"]", "64 levels"),
    ("deep behind an escaped backslash", rb'["\\", ' + nested(64) + b"]", "64 levels"),
    ("two documents", b"{} {}", "Extra data at line 1 column 4"),
    ("trailing comma", b"[1,]", "Invalid JSON"),
    ("trailing comma in an object", b'{"a":1,}', "Invalid JSON"),
    ("single quotes", b"{'a':1}", "double quotes"),
    ("unquoted key", b"{a:1}", "double quotes"),
    ("comment", b"{} // x", "Extra data"),
    ("leading zero", b"01", "Extra data"),
    ("leading plus", b"+1", "Expecting value"),
    ("no digit behind the point", b"1.", "Extra data"),
    ("no digit before the point", b".5", "Expecting value"),
    ("hexadecimal", b"0x10", "Extra data"),
    ("Arabic digits", "١".encode(), "Expecting value"),
    ("control character in a string", b'"a\nb"', "control character"),
    ("bad escape", rb'"\x41"', "escape"),
    ("short unicode escape", rb'"\u12"', "escape"),
    ("signed unicode escape", rb'"\u+123"', "escape"),
    ("no-break space", "\u00a0{}".encode(), "Expecting value"),
    ("form feed", b"\x0c{}", "Expecting value"),
    ("only a form feed", b"\x0c", "Expecting value"),
    ("Python's None", b"None", "Expecting value"),
    ("upper case", b"True", "Expecting value"),
    ("unfinished", b'{"a":', "Expecting value"),
    ("unfinished string", b'{"a', "Unterminated string"),
]


@pytest.mark.parametrize(("raw", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refuses(raw: bytes, message: str) -> None:
    with pytest.raises(ParseError) as raised:
        strict_json.loads(raw)
    assert message in raised.value.message
    assert len(raised.value.message) < 600
    raised.value.message.encode()
    with pytest.raises(ParseError):
        strict_json.loads(bytearray(raw))


ACCEPTED = [
    ("scalar", b"1", 1),
    ("whitespace", b' \r\n\t{"a" : [ 1 , null ] } \n', {"a": [1, None]}),
    ("least integer", b"-9223372036854775808", -(2**63)),
    ("greatest integer", b"9223372036854775807", 2**63 - 1),
    ("greatest double", b"1.7976931348623157e308", 1.7976931348623157e308),
    ("underflow", b"1e-999", 0.0),
    ("big number that is no integer literal", b"1e300", 1e300),
    ("an escaped backslash before u0000", rb'"\\u0000"', r"\u0000"),
    ("two escaped backslashes before u0000", rb'"\\\\u0000"', r"\\u0000"),
    ("a surrogate pair", rb'"\ud83d\ude00"', "😀"),
    ("an escaped backslash before ud800", rb'"\\ud800"', r"\ud800"),
    ("depth 64", nested(64), json.loads(nested(64))),
    ("many brackets, none deep", b"[" + b"[[]]," * 1000 + b"[]]", [[[]]] * 1000 + [[]]),
    ("brackets in strings", b'["' + b"[{" * 100 + rb"\"[[[[" + b'"]', ["[{" * 100 + '"[[[[']),
    ("brackets in keys", b'{"' + b"[" * 100 + b'":1}', {"[" * 100: 1}),
    ("a string that ends with a backslash", b'["' + b"[" * 80 + rb'\\", "]"]', ["[" * 80 + "\\", "]"]),
    ("equal keys in different objects", b'{"a":{"a":{"a":1}}}', {"a": {"a": {"a": 1}}}),
    ("line separators", '"\u2028\u2029\u0085"'.encode(), "\u2028\u2029\u0085"),
    ("a byte order mark inside a string", '"\ufeff"'.encode(), "\ufeff"),
]


@pytest.mark.parametrize(("raw", "value"), [row[1:] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED])
def test_accepts(raw: bytes, value: object) -> None:
    assert strict_json.loads(raw) == value
    assert strict_json.loads(bytearray(raw)) == value


def loads_or_none(raw: bytes) -> tuple[object] | None:
    try:
        return (strict_json.loads(raw),)
    except ParseError:
        return None


ALPHABET = [*'{}[]:,"\\ueE+-.0159aАd\x00\n ', r"\u0000", r"\ud800", r"\udc00", '"a":', "NaN", "true", "null", "é", "😀"]


@unhurried
@given(st.binary() | st.lists(st.sampled_from(ALPHABET)).map("".join).map(str.encode))
@example(b'{"a":1,"a":1}')
@example(rb'"\u0000"')
def test_raises_nothing_but_parse_error_and_agrees_with_the_usual_parsers(raw: bytes) -> None:
    accepted = loads_or_none(raw)
    if accepted is not None:
        assert accepted == (json.loads(raw),)
        assert accepted == (orjson.loads(raw),)


@unhurried
@given(VALUES)
def test_round_trip(value: object) -> None:
    text = strict_json.dumps(value)
    assert strict_json.loads(text.encode()) == value
    assert strict_json.loads_trusted(text) == value
    assert strict_json.loads(json.dumps(value).encode()) == value
    assert len(text.splitlines()) <= 1


@unhurried
@given(st.lists(st.sampled_from("[]{}"), min_size=60).map("".join))
def test_depth_is_judged_like_the_recursion_it_prevents(brackets: str) -> None:
    """Up to the first syntax error, the scanner never nests deeper than the measure says."""
    depth = deepest = 0
    for bracket in brackets:
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    text = f'["{brackets}\\"{brackets}\\\\", {brackets}'.encode()
    assert strict_json._depth(text) == deepest + 1  # pyright: ignore[reportPrivateUsage]


def test_dumps_is_compact_utf8_and_safe_in_a_stream_line() -> None:
    text = strict_json.dumps({"a": ["é😀", "\u2028\u2029\u0085", '"\\\n', 1.5, None, True]})
    assert text == '{"a":["é😀","\\u2028\\u2029\\u0085","\\"\\\\\\n",1.5,null,true]}'
    assert strict_json.escape_line_separators('"\u2028é"') == '"\\u2028é"'


def test_dumps_refuses_what_no_reader_could_take() -> None:
    for value in ("\ud800", {"\ud800": 1}, 2**64, {1: 2}, object()):
        with pytest.raises(TypeError):
            strict_json.dumps(value)


HOSTILE_BULK = {
    "open brackets": b"[" * 4_000_000,
    "a string of escaped quotes that never ends": b'{"a":' * 70 + b'"' + b'\\"' * 1_900_000,
    "backslashes": b"[" * 65 + b'"' + b"\\" * 3_900_000,
    "escaped backslashes before u0000": b'"' + rb"\\u0000" * 500_000 + b'"',
    "quotes": b"[" * 65 + b'"' * 3_900_000,
    "digits": b"1" * 4_000_000,
    "digits of a fraction": b"0." + b"1" * 4_000_000,
    "digits of an exponent": b"1e" + b"1" * 4_000_000,
}


@pytest.mark.parametrize("raw", HOSTILE_BULK.values(), ids=HOSTILE_BULK.keys())
def test_four_mebibytes_of_anything_take_linear_time(raw: bytes) -> None:
    started = time.process_time()
    loads_or_none(raw)
    # A quadratic pattern takes minutes on these; linear ones take 10 to 600 ms.
    assert time.process_time() - started < 10
