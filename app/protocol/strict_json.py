"""The one strict JSON loader, and the one printer, for everything that crosses a boundary.

Every door, worker events, remote agents' answers, JWKS documents and token segments are read by ``loads``; everything
stored or sent is printed by ``dumps``; what we stored ourselves is read back by ``loads_trusted``.

The loader is the C scanner of the standard library with hooks, behind byte-level tests that cost nanoseconds when a
body is ordinary: exact work (measuring depth, telling ``\\u0000`` from an escaped backslash, pairing surrogates) is
done only when the bytes that make it necessary occur.
"""

import json
import math
import re
from collections import Counter
from itertools import accumulate
from typing import Any

import orjson

from app.errors import ParseError

MAX_DEPTH = 64
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_INT64_CHARACTERS = len(str(_INT64_MIN))

_BOM = b"\xef\xbb\xbf"
_WHITESPACE = b" \t\n\r"
# Backslashes occur in strings only, and an even run before this one leaves it an escape.
_NUL_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
# Opening brackets become +1, closing ones -1 (as signed bytes), all else is deleted.
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[{]}")
_LINE_SEPARATORS = (("\u2028", "\\u2028"), ("\u2029", "\\u2029"), ("\x85", "\\u0085"))


def loads(raw: bytes | bytearray) -> object:
    """Parse one JSON document, or raise ParseError with a message that says what is wrong; nothing else is raised.

    Refused beyond RFC 8259's grammar (security.md, Input limits): a BOM, anything but UTF-8, U+0000, lone surrogates,
    NaN and Infinity, numbers that overflow a double, integers outside int64, duplicate keys, a depth over 64.
    """
    if b"\x00" in raw:
        raise ParseError("Invalid JSON: a NUL byte; the body must be UTF-8")
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _depth(raw) > MAX_DEPTH:
        raise ParseError(f"Invalid JSON: nested more than {MAX_DEPTH} levels deep")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise ParseError(f"Invalid JSON: not UTF-8 at byte {error.start}") from None
    try:
        value: object = _decode(text)
    except json.JSONDecodeError as error:
        raise ParseError(_explain(raw, error)) from None
    if b"\\u" in raw:
        _check_escapes(raw, value)
    return value


def loads_trusted(raw: str | bytes) -> Any:
    """Parse JSON that this service printed itself: fast, and none of the checks of ``loads``."""
    return orjson.loads(raw)


def dumps(value: object) -> str:
    """Print compact JSON in UTF-8, safe inside an SSE ``data:`` line: U+2028, U+2029 and U+0085 are escaped.

    Raises TypeError for what JSON cannot carry (lone surrogates and integers beyond 64 bits among them).
    """
    return escape_line_separators(orjson.dumps(value).decode())


def dumps_ascii(value: object) -> str:
    """The same in ASCII, for readers that split UTF-8 between two characters' bytes."""
    return json.dumps(value, separators=(",", ":"))


def escape_line_separators(text: str) -> str:
    """The same JSON text without the characters that some readers take for line ends (for text printed elsewhere)."""
    if text.isascii():
        return text
    for character, escape in _LINE_SEPARATORS:
        text = text.replace(character, escape)
    return text


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        key = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ParseError(f"Invalid JSON: duplicate key {_quoted(key)}")
    return members


def _integer(digits: str) -> int:
    # The length first: int() of thousands of digits is slow, then refused with a ValueError.
    if len(digits) > _INT64_CHARACTERS or not _INT64_MIN <= (value := int(digits)) <= _INT64_MAX:
        raise ParseError("Invalid JSON: an integer outside the 64-bit range")
    return value


def _double(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ParseError("Invalid JSON: a number too large for a double")
    return value


def _constant(name: str) -> object:
    raise ParseError(f"Invalid JSON: {name} is not a JSON value")


_decode = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_double, parse_constant=_constant
).decode


def _depth(raw: bytes | bytearray) -> int:
    """The deepest nesting up to the first syntax error; past it the figure means nothing, and no parser gets there."""
    # Backslashes occur in strings only: without escaped backslashes and quotes, every second piece is outside strings.
    pieces = raw.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2]
    brackets = b"".join(pieces).translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(memoryview(brackets).cast("b")), default=0)


def _check_escapes(raw: bytes | bytearray, value: object) -> None:
    if b"\\u0000" in raw and _NUL_ESCAPE.search(raw):
        raise ParseError("Invalid JSON: U+0000 is not allowed in strings")
    if b"\\ud" in raw or b"\\uD" in raw:
        try:
            orjson.dumps(value)
        except TypeError:
            raise ParseError("Invalid JSON: a lone surrogate in a string") from None


def _explain(raw: bytes | bytearray, error: json.JSONDecodeError) -> str:
    if raw.startswith(_BOM):
        return "Invalid JSON: a byte order mark is not allowed"
    if not raw.strip(_WHITESPACE):
        return "Invalid JSON: the body is empty"
    return f"Invalid JSON: {error.msg} at line {error.lineno} column {error.colno}"


def _quoted(key: str) -> str:
    """A key for a message: shortened, and printable whatever it holds."""
    return json.dumps(key if len(key) <= 64 else key[:64] + "…")
