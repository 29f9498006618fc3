"""The one form of all spellings of a JSON value (RFC 8785, JCS), and its SHA-256.

Used wherever a repeat must be told from a conflict (idempotency keys, producerEventIds, the argsHash of an approval),
and for what is signed: agent cards.
"""

import hashlib
from typing import cast

import orjson
import rfc8785

_SAFE_INTEGER = 2**53 - 1


def sha256_of(value: object) -> bytes:
    """SHA-256 (32 bytes) over the canonical form."""
    return hashlib.sha256(canonical(value)).digest()


def canonical(value: object) -> bytes:
    """The RFC 8785 form; never raises for what ``strict_json.loads`` accepts.

    RFC 8785 knows doubles only (I-JSON), so an integer beyond ±(2^53 - 1) counts as the double nearest to it: two such
    integers that round to the same double are the same value here. Member order, whitespace, escapes and the spelling
    of numbers (1, 1.0, 1e0) make no difference; Unicode is not normalised.
    """
    if _sorted_print_is_canonical(value):
        # The same bytes 10 times sooner; nearly all messages take this way.
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return rfc8785.dumps(_doubles(value))  # pyright: ignore[reportArgumentType]


def _sorted_print_is_canonical(value: object) -> bool:
    """Whether orjson's sorted print is the RFC 8785 form: no number is printed otherwise, no key sorts otherwise."""
    if isinstance(value, str) or value is None or isinstance(value, bool):
        return True
    if isinstance(value, int):
        return -_SAFE_INTEGER <= value <= _SAFE_INTEGER
    if isinstance(value, dict):
        for key, member in cast("dict[str, object]", value).items():
            # orjson sorts by UTF-8 bytes, RFC 8785 by UTF-16 units: they agree at least on ASCII.
            if not key.isascii() or not _sorted_print_is_canonical(member):
                return False
        return True
    if isinstance(value, list):
        return all(_sorted_print_is_canonical(item) for item in cast("list[object]", value))
    return False


def _doubles(value: object) -> object:
    """The same value with each integer that a double cannot carry exactly replaced by the double it is in I-JSON."""
    if isinstance(value, dict):
        return {key: _doubles(member) for key, member in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_doubles(item) for item in cast("list[object]", value)]
    if isinstance(value, int) and not -_SAFE_INTEGER <= value <= _SAFE_INTEGER:
        return float(value)
    return value
