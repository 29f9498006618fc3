"""The HTTP client of a running broker that all client commands share. It knows URLs and errors, no command logic.

An answer that is not a success becomes one CliError line with its remedy.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, cast
from urllib.parse import quote

import httpx

from app.cli.errors import CliError, usage
from app.cli.output import JsonObject, printable
from app.settings import LOOPBACK_HOSTS

A2A_VERSION = {"A2A-Version": "1.0"}
UNARY_SECONDS = 90
"""Above the broker's longest blocking wait and long poll."""
STREAM_SILENCE_SECONDS = 45
"""Three missed heartbeats: the connection is dead."""
RETRIES = 5
WRONG_CREDENTIAL = "the token is missing, expired or of another broker: `waystation token mint`, then WAYSTATION_TOKEN"
NOT_WAYSTATION = "does --url point at Waystation?"


class Broker:
    """One broker at ``url``, called with ``token``. Use as an async context manager."""

    def __init__(self, url: str, token: str) -> None:
        try:
            self.url = httpx.URL(url.rstrip("/"))
        except httpx.InvalidURL as exc:
            raise usage(f"not a URL: {url}") from exc
        if self.url.scheme not in ("http", "https") or not self.url.host:
            raise usage(f"not an http(s) URL: {url}", remedy="for example --url http://127.0.0.1:8080")
        self._client = httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(UNARY_SECONDS, connect=5),
            trust_env=self.url.host not in LOOPBACK_HOSTS,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        params: Mapping[str, str | int] | None = None,
        headers: Mapping[str, str] | None = None,
        retry: bool = False,
    ) -> JsonObject:
        """The JSON of a successful answer ({} for an empty one). With ``retry`` the call may be repeated as it is
        (same ids), and it is, when the broker goes away in the middle of it or answers 503."""
        for attempt in range(RETRIES + 1):
            try:
                response = await self._client.request(
                    method, path, json=body, params=dict(params or {}), headers=dict(headers or {})
                )
            except httpx.TransportError as exc:
                nobody_there = attempt == 0 and isinstance(exc, httpx.ConnectError | httpx.ConnectTimeout)
                if not retry or attempt == RETRIES or nobody_there:
                    raise self.unreachable(exc) from exc
                await asyncio.sleep(min(2**attempt * 0.2, 3))
                continue
            if response.status_code == 503 and retry and attempt < RETRIES:
                await asyncio.sleep(retry_after(response))
                continue
            return _success(response)
        raise AssertionError("unreachable: the last attempt returns or raises")

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str | int], headers: Mapping[str, str]
    ) -> AsyncGenerator[httpx.Response]:
        """An open response to read line by line. Transport errors and status codes are the caller's to handle."""
        timeout = httpx.Timeout(STREAM_SILENCE_SECONDS, connect=5)
        async with self._client.stream("GET", path, params=params, headers=headers, timeout=timeout) as response:
            yield response

    async def pages(
        self, path: str, key: str, params: Mapping[str, str | int], limit: int
    ) -> AsyncIterator[JsonObject]:
        """The items of a paged list, at most ``limit``, fetched page by page."""
        token = ""
        while limit > 0:
            query = {**params, "pageSize": min(limit, 100), **({"pageToken": token} if token else {})}
            page = await self.call("GET", path, params=query, retry=True)
            for item in page.get(key, []):
                yield item
                limit -= 1
                if limit == 0:
                    return
            token = page.get("nextPageToken", "")
            if not token:
                return

    def unreachable(self, cause: Exception) -> CliError:
        if isinstance(cause, httpx.ReadTimeout):
            return CliError(f"the broker at {self.url} did not answer in time", remedy="look at its log, or at /readyz")
        return CliError(
            f"no broker can be reached at {self.url} ({printable(cause) or type(cause).__name__})",
            remedy="start one with `waystation serve --dev`, or name it with --url or WAYSTATION_URL",
        )


def segment(value: str) -> str:
    """``value`` as one path segment, whatever it contains."""
    return quote(value, safe="") or "-"


def retry_after(response: httpx.Response) -> float:
    """Seconds to wait before a refused request is sent again, at most 5."""
    try:
        return min(max(float(response.headers.get("Retry-After", "1")), 0.1), 5)
    except ValueError:
        return 1


def refusal(response: httpx.Response) -> CliError:
    """The one line for an answer that is not a success. The body must have been read."""
    error = _error_of(response)
    no_info: JsonObject = {}
    message = printable(error.get("message") or f"HTTP {response.status_code}")
    details: list[JsonObject] = error.get("details", [])
    info = next((item for item in details if "reason" in item), no_info)
    match response.status_code:
        case 401:
            remedy = WRONG_CREDENTIAL
        case 403:
            scope = info.get("metadata", {}).get("scope", "")
            remedy = f"use a token with the scope {printable(scope)}".rstrip()
        case 404 if error:
            remedy = "`waystation agents list` and `waystation tasks list` show what this tenant has"
        case 404:
            remedy = NOT_WAYSTATION
        case 429 | 503:
            remedy = (
                f"try again in {retry_after(response):.0f} s; nothing was done"
                if response.status_code == 429
                else "resend in a moment; GET /readyz says why"
            )
        case _:
            remedy = "; ".join(each for each in _violations(error) if each not in message) or None
    reason = info.get("reason")
    return CliError(f"{message} ({printable(reason)})" if reason else message, remedy=remedy)


def _violations(error: JsonObject) -> list[str]:
    return [
        printable(f"{violation.get('field', '')}: {violation.get('description', '')}")
        for item in error.get("details", [])
        for violation in item.get("fieldViolations", [])
    ]


def _error_of(response: httpx.Response) -> JsonObject:
    try:
        body: Any = response.json()
        return body["error"] if isinstance(body["error"], dict) else {}
    except (ValueError, KeyError, TypeError):
        return {}


def _success(response: httpx.Response) -> JsonObject:
    if not response.is_success:
        raise refusal(response)
    if not response.content:
        return {}
    try:
        body: Any = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise CliError("the answer is not a broker's", remedy=NOT_WAYSTATION)
    return cast("JsonObject", body)
