"""One fingerprint for all spellings of one value, another for any other value."""

import hashlib
import json
import struct

import pytest
import rfc8785
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.protocol.canonical import sha256_of
from app.protocol.strict_json import loads

# The machine may be busy: a slow example is no fault.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
SAFE = st.integers(-(2**53) + 1, 2**53 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | SAFE | FLOATS | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=30)
ANY_INT64 = st.recursive(
    SCALARS | st.integers(-(2**63), 2**63 - 1), lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner)
)

# RFC 8785, Appendix B: the bits of a double and how it is printed.
NUMBERS = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
]


def printed(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


@unhurried
@given(VALUES)
def test_is_the_hash_of_the_rfc_8785_form(value: object) -> None:
    assert sha256_of(value) == hashlib.sha256(rfc8785.dumps(value)).digest()


@unhurried
@given(ANY_INT64)
def test_never_raises_for_what_the_loader_accepts(value: object) -> None:
    assert len(sha256_of(loads(json.dumps(value).encode()))) == 32


@pytest.mark.parametrize(("bits", "text"), NUMBERS)
def test_numbers_of_the_appendix(bits: str, text: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert sha256_of(number) == printed(text)
    assert sha256_of({"a": [number]}) == printed('{"a":[' + text + "]}")


def test_all_spellings_of_one_value_are_one() -> None:
    spellings = [
        rb'{"b":1,"a":["\u00e9",1000,{"y":null,"x":"\/"}]}',
        '{ "a" : [ "é", 1e3, { "x": "/", "y": null } ], "b": 1.0 }'.encode(),
    ]
    assert {sha256_of(loads(raw)) for raw in spellings} == {printed('{"a":["é",1000,{"x":"/","y":null}],"b":1}')}


def test_keys_sort_by_utf16_units() -> None:
    """RFC 8785, section 3.2.3: code points would put U+1F600 last, UTF-16 puts it before U+FB33."""
    assert sha256_of({"\ufb33": 1, "\U0001f600": 2}) == printed('{"\U0001f600":2,"\ufb33":1}')


def test_integers_beyond_the_safe_range_count_as_doubles() -> None:
    assert sha256_of([2**63 - 1]) == sha256_of([2**63 - 2]) == printed("[9223372036854776000]")
    assert sha256_of({"a": 2**53 + 1}) == sha256_of({"a": 2**53}) == printed('{"a":9007199254740992}')
    assert sha256_of(2**53 - 1) != sha256_of(2**53 - 2)


@pytest.mark.parametrize("other", [{"a": "1"}, {"a": True}, {"a": None}, {"a": [1]}, {"A": 1}, {"a": 1, "b": None}, {}])
def test_other_values_differ(other: object) -> None:
    assert sha256_of(other) != sha256_of({"a": 1})
