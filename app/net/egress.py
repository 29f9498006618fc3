"""The one place that calls out. Today it fetches issuers' documents for ``auth.keys``; webhooks, agent cards and
dispatch will go through here too, with the address checks of security.md, Outbound calls.
"""

import asyncio
import functools
import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import httpx


class FetchFailed(Exception):
    """No usable answer. The text is for logs: it names the cause, it is never shown to a caller."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A complete 200 answer. Header names are case-insensitive."""

    body: bytes
    headers: Mapping[str, str]


async def fetch_bytes(url: str, *, max_bytes: int, timeout: float, allow_http_loopback: bool) -> Fetched:
    """GET ``url`` and return the whole body if it is a 200 of at most ``max_bytes``; ``timeout`` seconds bound it all.

    No redirect is followed, no proxy or netrc of the environment is used, no compression is accepted. Raises
    FetchFailed for everything else, a URL that ``check_url`` refuses among it.
    """
    check_url(url, allow_http_loopback=allow_http_loopback)
    try:
        async with (
            asyncio.timeout(timeout),
            httpx.AsyncClient(verify=_tls(), trust_env=False, follow_redirects=False, timeout=timeout) as client,
            client.stream("GET", url, headers={"Accept": "application/json", "Accept-Encoding": "identity"}) as answer,
        ):
            if answer.status_code != 200:
                raise FetchFailed(f"{url}: status {answer.status_code}")
            return Fetched(await _read(answer, max_bytes), answer.headers)
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        # TimeoutError is an OSError.
        raise FetchFailed(f"{url}: {type(error).__name__} {error}".rstrip()) from error


def check_url(url: str, *, allow_http_loopback: bool) -> None:
    """Raise FetchFailed unless ``url`` is https (or http to this machine, if allowed) without userinfo or fragment."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise FetchFailed(f"{url!r}: {error}") from error
    if parsed.userinfo or parsed.fragment or not parsed.host:
        raise FetchFailed(f"{url!r}: a URL needs a host, and neither userinfo nor fragment")
    if parsed.scheme != "https" and not (parsed.scheme == "http" and allow_http_loopback and _is_loopback(parsed.host)):
        raise FetchFailed(f"{url!r}: https is required")


async def _read(answer: httpx.Response, max_bytes: int) -> bytes:
    if answer.headers.get("content-encoding", "identity").lower() != "identity":
        raise FetchFailed(f"{answer.url}: compressed although nothing but identity was asked for")
    body = bytearray()
    async for chunk in answer.aiter_raw():
        body += chunk
        if len(body) > max_bytes:
            raise FetchFailed(f"{answer.url}: more than {max_bytes} bytes")
    return bytes(body)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@functools.cache
def _tls() -> ssl.SSLContext:
    # Loading the CA bundle takes tens of milliseconds of the event loop: once, not per fetch.
    return httpx.create_ssl_context(trust_env=False)
