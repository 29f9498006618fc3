"""A handle comes back as it was made, under its own kind and keys, or it is nothing."""

import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.auth import handles as handles_module
from app.auth.handles import MAX_CHARACTERS, Handles

# The machine may be busy: a slow example is no fault.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

OLD, NEW, FOREIGN = (
    b"old key of at least 32 bytes ....",
    b"new key of at least 32 bytes ....",
    b"a key of somebody else's ........",
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PAYLOADS = st.lists(st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT | st.lists(TEXT), max_size=8)
LEASE = ["a", "0193b0c8-7a3e-7c11-9d0e-1b2c3d4e5f60", "stock", "0193b0c8-7a3e-7c11-9d0e-1b2c3d4e5f61", 17]
URL_SAFE = set(string.ascii_letters + string.digits + "-_")


@unhurried
@given(PAYLOADS, st.text(max_size=10))
def test_round_trip(payload: list[object], kind: str) -> None:
    handles = Handles([NEW])
    text = handles.seal(kind, payload)
    assert handles.open(kind, text) == payload
    assert set(text) <= URL_SAFE
    assert handles.seal(kind, payload) == text
    assert handles.open(kind + "x", text) is None
    assert Handles([FOREIGN]).open(kind, text) is None


def test_lease_ids_are_short() -> None:
    assert len(Handles([NEW]).seal("lease", list(LEASE))) <= 160


def test_rotation() -> None:
    """The first key signs, all verify: first the new key is added behind, then put first, then the old one goes."""
    before, during, after = Handles([OLD, NEW]), Handles([NEW, OLD]), Handles([NEW])
    old, new = before.seal("lease", LEASE), during.seal("lease", LEASE)
    assert old != new
    for handles, text in ((before, old), (before, new), (during, old), (during, new), (after, new)):
        assert handles.open("lease", text) == LEASE
    assert after.open("lease", old) is None


def test_every_changed_bit_makes_garbage() -> None:
    handles = Handles([NEW])
    text = handles.seal("lease", LEASE)
    alphabet = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
    for position, character in enumerate(text):
        for bit in range(6):
            changed = alphabet[alphabet.index(character) ^ 1 << bit]
            assert handles.open("lease", text[:position] + changed + text[position + 1 :]) is None


def test_kind_and_content_do_not_run_together() -> None:
    handles = Handles([NEW])
    assert handles.open("", handles.seal("a", [])) is None
    assert handles.seal("a", [])[:22] != handles.seal("b", [])[:22]


GARBAGE = [
    "",
    "a",
    "AAAA",
    "A" * 22,
    "A" * 23,
    "A" * 25,
    "A" * MAX_CHARACTERS,
    "A" * (MAX_CHARACTERS + 1),
    "../../etc/passwd",
    "é" * 30,
    "Ａ" * 30,
    "\ud800" * 30,
    "\x00" * 30,
    "a b",
    "1 OR 1=1",
]


@pytest.mark.parametrize("text", GARBAGE)
def test_garbage(text: str) -> None:
    assert Handles([NEW]).open("lease", text) is None


@unhurried
@given(st.text())
def test_anything(text: str) -> None:
    assert Handles([NEW, OLD]).open("lease", text) is None


def test_other_spellings_of_a_handle_are_garbage() -> None:
    handles = Handles([NEW])
    text = handles.seal("lease", LEASE)
    for other in (
        text + "=",
        text + "==",
        f" {text}",
        f"{text}\n",
        text.swapcase(),
        text[:-1],
        text[4:],
        text + "AAAA",
    ):
        assert handles.open("lease", other) is None


def test_a_handle_has_a_greatest_length() -> None:
    handles = Handles([NEW])
    longest = handles.seal("cursor", ["x" * (MAX_CHARACTERS * 3 // 4 - 20)])
    assert len(longest) == MAX_CHARACTERS
    assert handles.open("cursor", longest)
    with pytest.raises(ValueError, match="characters"):
        handles.seal("cursor", ["x" * (MAX_CHARACTERS * 3 // 4 - 19)])


def test_a_longer_handle_is_not_even_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(handles_module, "MAX_CHARACTERS", 10_000)
        text = Handles([NEW]).seal("cursor", ["x" * 5000])
        assert Handles([NEW]).open("cursor", text)
    assert Handles([NEW]).open("cursor", text) is None


def test_keys_are_needed() -> None:
    with pytest.raises(ValueError, match="at least one key"):
        Handles([])
