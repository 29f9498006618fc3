"""The one place that calls out: webhooks, agent cards, dispatch and the issuers' keys (security.md, Outbound calls).

One call:

    URL ─targets─> Target ─policy─> resolved once ─policy, every address─> connected to one of these very addresses,
    while Host, SNI and the certificate's name stay those of the URL ─> status, headers, body up to a limit

No redirect is followed, nothing of the environment (proxies, netrc, certificates) is used, no compression is asked for
or undone, and one time limit bounds it all.
"""

import asyncio
import functools
import ipaddress
import re
import ssl
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import h11
import httpx

from app import metrics
from app.net.addresses import Address
from app.net.answers import Answer, EgressFailed, Reading
from app.net.connections import Connections
from app.net.names import Resolve, Resolver
from app.net.policy import EgressPolicy, OperatorPolicy, Policy
from app.net.targets import EgressRefused, Target, parse

__all__ = ["Answer", "Egress", "EgressFailed", "EgressPolicy", "EgressRefused", "OperatorPolicy", "Purpose"]

Purpose = Literal["webhook", "card", "dispatch", "keys"]

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
# They say where the message ends, what becomes of the connection, and whom it is for.
_OUR_HEADERS: Final = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "accept-encoding", "connection", "keep-alive"),
        *("te", "trailer", "upgrade", "expect", "proxy-authorization", "proxy-connection"),
    }
)


class Egress:
    """Calls out by one ``policy``. ``resolve`` finds addresses (the system's resolver by default), ``tls`` says whose
    certificates are trusted (certifi's by default).
    """

    def __init__(self, policy: Policy, *, resolve: Resolve | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._policy = policy
        self._resolve = resolve or Resolver()
        self._tls = tls
        self._connections = Connections()

    def check(self, url: str) -> None:
        """Raise EgressRefused if ``url`` is never called, going by what it says alone."""
        self._policy.check_target(parse(url))

    async def vet(self, url: str, *, timeout: float = 5) -> None:
        """``check``, and every address that the host has at present; a name that does not resolve is accepted."""
        target = parse(url)
        self._policy.check_target(target)
        try:
            await self._vetted(target, timeout)
        except EgressFailed:
            return

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes = b"",
        connect_timeout: float = 5,
        timeout: float = 15,
        max_bytes: int = 65536,
        read_all: bool = False,
        purpose: Purpose = "webhook",
    ) -> Answer:
        """Send one request and return the answer, whatever its status. ``timeout`` seconds bound it all.

        With ``read_all`` the answer is whole, or there is none. Without, its status is enough: at most ``max_bytes`` of
        the body come along, and whatever goes wrong after the head only makes it ``truncated``.
        Raises EgressRefused for a URL, address or header that may not be, EgressFailed when there is no answer.
        ``purpose`` is for the metrics.
        """
        outcome = "cancelled"
        try:
            target = parse(url)
            self._policy.check_target(target)
            request = _request(method, target, headers, content)
            answer = await self._call(target, request, content, connect_timeout, timeout, max_bytes, read_all)
            outcome = f"{answer.status // 100}xx"
            return answer
        except EgressRefused:
            outcome = "refused"
            raise
        except EgressFailed as error:
            outcome = error.kind
            raise
        finally:
            metrics.OUTBOUND_CALLS.labels(purpose, outcome).inc()

    async def aclose(self) -> None:
        """Close the idle connections. Idempotent."""
        self._connections.close()

    async def _call(
        self,
        target: Target,
        request: h11.Request,
        content: bytes,
        connect_timeout: float,
        timeout: float,
        max_bytes: int,
        read_all: bool,
    ) -> Answer:
        reading = Reading(max_bytes)
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._vetted(target, connect_timeout)
                tls = self._tls or default_tls()
                connection = await self._connections.take(target, addresses, tls, connect_timeout)
                try:
                    await connection.exchange(request, content, reading)
                finally:
                    self._connections.give_back(connection)
        except (OSError, h11.ProtocolError) as error:
            if read_all or not reading.has_head:
                raise _failure(error) from error
        answer = reading.answer()
        if read_all and answer.truncated:
            raise EgressFailed("too_large", f"more than {max_bytes} bytes")
        return answer

    async def _vetted(self, target: Target, timeout: float) -> Sequence[Address]:
        """The addresses of the target's host, all of them allowed. Raises EgressRefused, or EgressFailed for "dns"."""
        if target.address is not None:
            return [target.address]  # vetted with the target
        try:
            async with asyncio.timeout(timeout):
                found = await self._resolve(target.host, target.port)
        except (OSError, UnicodeError) as error:
            raise EgressFailed("dns", f"{target.host}: {type(error).__name__} {error}") from error
        addresses = [ipaddress.ip_address(text) for text in found]
        for address in addresses:
            self._policy.check_address(target, address)
        if not addresses:
            raise EgressFailed("dns", f"{target.host}: no address")
        return addresses


@functools.cache
def default_tls() -> ssl.SSLContext:
    """Trusts the authorities of certifi. Loading them blocks the event loop for long: once, not per call."""
    context = httpx.create_ssl_context(trust_env=False)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _request(method: str, target: Target, headers: Mapping[str, str], content: bytes) -> h11.Request:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _OUR_HEADERS:
            raise EgressRefused(f"The header {name[:64]!r} may not be sent")
        if not _HEADER_VALUE.fullmatch(value):
            raise EgressRefused(f"The value of the header {name[:64]!r} is not one line of visible ASCII")
    fields = {"Host": target.authority, "Accept-Encoding": "identity", **headers}
    if content or method not in {"GET", "HEAD"}:
        fields["Content-Length"] = str(len(content))
    return h11.Request(method=method, target=target.path, headers=list(fields.items()))


def _failure(error: OSError | h11.ProtocolError) -> EgressFailed:
    detail = f"{type(error).__name__} {error}".rstrip()
    match error:
        case TimeoutError():
            return EgressFailed("timeout", detail)
        case h11.ProtocolError():
            return EgressFailed("protocol", detail)
        case _:
            return EgressFailed("closed", detail)
