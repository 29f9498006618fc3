"""How a call ended: the answer, or why there is none. Raised and returned by ``net.egress``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import httpx

Kind = Literal["dns", "connect", "tls", "timeout", "closed", "protocol", "too_large"]

_REASONS: Final[Mapping[Kind, str]] = {
    "dns": "The host name could not be resolved",
    "connect": "No connection could be made",
    "tls": "The host's certificate, or its TLS, was not accepted",
    "timeout": "No answer came in time",
    "closed": "The connection was closed before the answer",
    "protocol": "The answer was cut short or was not HTTP/1.1",
    "too_large": "The answer was too large",
}


class EgressFailed(Exception):
    """No usable answer. The text may be shown to a tenant; ``detail`` names hosts and causes, and is for logs."""

    def __init__(self, kind: Kind, detail: str) -> None:
        super().__init__(_REASONS[kind])
        self.kind: Kind = kind
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Answer:
    """``headers`` are case-insensitive, ``body`` is as it was sent, ``truncated`` tells that it is not all of it."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    truncated: bool


class Reading:
    """An answer as far as it has come: a call that is broken off may have its status all the same."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.has_head = False
        self.is_complete = False
        self._status = 0
        self._headers = httpx.Headers()
        self._body = bytearray()

    @property
    def is_full(self) -> bool:
        """Whether there is more of the body than is wanted."""
        return len(self._body) > self.max_bytes

    def head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._status, self._headers, self.has_head = status, httpx.Headers(list(headers)), True

    def body(self, data: bytes | bytearray) -> None:
        self._body += data

    def answer(self) -> Answer:
        """What has come; only once ``has_head``."""
        return Answer(self._status, self._headers, bytes(self._body[: self.max_bytes]), not self.is_complete)
