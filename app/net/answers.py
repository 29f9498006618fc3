"""How a call ended: the answer, or why there is none. Raised and returned by ``net.egress``."""

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Literal, Protocol, cast

import httpcore
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


class _Chunks(Protocol):
    """What httpcore's streams are in fact: their iterators must be closed when they are left early."""

    def __aiter__(self) -> AsyncGenerator[bytes]: ...


class Reading:
    """An answer as far as it has come: a call that is broken off may have its status all the same."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._head: tuple[int, httpx.Headers] | None = None
        self._body = bytearray()
        self._is_complete = False

    async def read(self, response: httpcore.Response) -> None:
        """Take in all of ``response``, or as much as is allowed and one piece more. Raises httpcore's errors."""
        self._head = response.status, httpx.Headers(response.headers)
        async with aclosing(aiter(cast("_Chunks", response.stream))) as chunks:
            async for chunk in chunks:
                self._body += chunk
                if len(self._body) > self._max_bytes:
                    return
        await response.aclose()
        self._is_complete = True

    def answer(self) -> Answer | None:
        """None before the head has come."""
        if self._head is None:
            return None
        status, headers = self._head
        return Answer(status, headers, bytes(self._body[: self._max_bytes]), not self._is_complete)


ERRORS: Final = (TimeoutError, OSError, httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError)
"""What a call under way may raise."""


def failure(error: Exception) -> EgressFailed:
    """What one of ``ERRORS`` means."""
    detail = f"{type(error).__name__} {error}".rstrip()
    if isinstance(error, ssl.SSLError) or isinstance(error.__cause__, ssl.SSLError):
        return EgressFailed("tls", detail)
    match error:
        case TimeoutError() | httpcore.TimeoutException():
            return EgressFailed("timeout", detail)
        case httpcore.ConnectError():
            return EgressFailed("connect", detail)
        case httpcore.ProtocolError():
            return EgressFailed("protocol", detail)
        case _:
            return EgressFailed("closed", detail)
