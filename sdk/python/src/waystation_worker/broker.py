"""The worker API of a broker over HTTP (native-api.md, Workers). Used by the claim loop, the heartbeat and the outbox.

Every call may be sent again and again: claims carry a claimId, events their producerEventIds, retry and release answer
the same under one fence. So a broker that is away (restarting, or without its database) is waited for, not reported.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any, Self, TypeAlias, cast
from urllib.parse import quote

import httpx

from waystation_worker.backoff import full_jitter, retry_after
from waystation_worker.content import Json, encode
from waystation_worker.errors import BrokerRefused, LeaseLost
from waystation_worker.lease import Beat, Lease, Receipt

logger = logging.getLogger(__name__)

Token: TypeAlias = str | Callable[[], str]
"""A bearer token, or a function that gives the current one; it is asked before every request."""

AWAY = frozenset({408, 425, 429, 502, 503, 504})
"""Answers that say "later": the request is sent again for as long as it takes."""
PATIENCE = 5
"""How often in a row a 500 is taken for an accident before it is the answer."""
ANSWER_SECONDS = 10.0
"""How long an answer may take, on top of the wait that was asked for."""


class Broker:
    """One broker, reached over pooled connections; an async context manager.

    Calls raise BrokerRefused for an error that will not go away by itself, and LeaseLost where a lease has ended.
    """

    def __init__(self, url: str, token: Token) -> None:
        self._token = token
        self._http = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=100),
        )
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._http)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def claim(
        self,
        agent: str,
        *,
        worker_id: str,
        claim_id: str,
        limit: int,
        wait: float,
        seconds: float | None = None,
        full: bool = False,
    ) -> list[Lease]:
        """Up to ``limit`` leases, after at most ``wait`` seconds. The same ``claim_id`` gives the same leases again."""
        request: Json = {"workerId": worker_id, "claimId": claim_id, "max": limit, "waitSeconds": wait}
        if seconds is not None:
            request["leaseSeconds"] = seconds
        if full:
            request["taskView"] = "full"
        answer = await self._post(f"/v1/agents/{quote(agent, safe='')}/leases", encode(request), wait)
        return [Lease.parse(lease) for lease in answer["leases"]]

    async def heartbeat(self, lease_ids: Sequence[str], *, wait: float, seconds: float | None = None) -> list[Beat]:
        """Keeps leases, and answers when one of them has news or ``wait`` seconds are over."""
        request: Json = {"leaseIds": list(lease_ids), "waitSeconds": wait}
        if seconds is not None:
            request["extendSeconds"] = seconds
        answer = await self._post("/v1/leases/heartbeat", encode(request), wait)
        return [Beat.parse(beat) for beat in answer["results"]]

    async def append(self, lease_id: str, events: Sequence[bytes]) -> Receipt:
        """Writes encoded events, all or none."""
        body = b'{"events":[' + b",".join(events) + b"]}"
        return Receipt.parse(await self._post_lease(lease_id, "events", body))

    async def retry(self, lease_id: str, error: str, delay_seconds: float | None = None) -> None:
        """Gives the turn back for another attempt; the broker makes it FAILED when there is none left."""
        request: Json = {"error": error}
        if delay_seconds is not None:
            request["delaySeconds"] = delay_seconds
        await self._post_lease(lease_id, "retry", encode(request))

    async def release(self, lease_id: str) -> None:
        """Gives the turn back untouched: the attempt does not count."""
        await self._post_lease(lease_id, "release", b"{}")

    async def _post_lease(self, lease_id: str, action: str, body: bytes) -> Json:
        try:
            return await self._post(f"/v1/leases/{quote(lease_id, safe='')}/{action}", body)
        except BrokerRefused as refused:
            if refused.reason in {"LEASE_LOST", "TASK_TERMINAL"} or refused.status == HTTPStatus.NOT_FOUND:
                raise LeaseLost(refused.reason, refused.metadata.get("state")) from refused
            raise

    async def _post(self, path: str, body: bytes, wait: float = 0) -> Json:
        """Sends until there is an answer. The body is the same each time, so that the broker knows it again."""
        failures = 0
        while True:
            token = self._current_token()
            try:
                response = await self._http.post(
                    path,
                    content=body,
                    headers={"authorization": f"Bearer {token}", "content-type": "application/json"},
                    timeout=httpx.Timeout(ANSWER_SECONDS, read=wait + ANSWER_SECONDS),
                )
            except httpx.TransportError as error:
                failures += 1
                delay, cause = full_jitter(failures), f"{type(error).__name__} {error}".strip()
            else:
                if response.is_success:
                    if failures:
                        logger.info("the broker answers again")
                    return _object(response)
                failures += 1
                refused = _refused(response)
                if not self._worth_another(response.status_code, failures, token):
                    raise refused
                delay, cause = retry_after(response.headers) or full_jitter(failures), str(refused)
            logger.log(logging.WARNING if failures == 1 else logging.DEBUG, "the broker is away, trying on: %s", cause)
            await asyncio.sleep(delay)

    def _current_token(self) -> str:
        return self._token if isinstance(self._token, str) else self._token()

    def _worth_another(self, status: int, failures: int, token: str) -> bool:
        if status == HTTPStatus.UNAUTHORIZED:
            return self._current_token() != token
        return status in AWAY or (status == HTTPStatus.INTERNAL_SERVER_ERROR and failures < PATIENCE)


def _object(response: httpx.Response) -> Json:
    try:
        answer: Any = response.json()
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise BrokerRefused(response.status_code, "NOT_A_BROKER", f"{response.url} did not answer with a JSON object")
    return cast("Json", answer)


def _refused(response: httpx.Response) -> BrokerRefused:
    """The REST door's error shape (A2A v1.0 §11.6): ``{"error": {"message", "details": [ErrorInfo]}}``."""
    status = response.status_code
    try:
        error: Any = response.json()["error"]
        infos: list[Any] = [detail for detail in error.get("details", ()) if "reason" in detail]
        info: Json = infos[0] if infos else {}
        return BrokerRefused(
            status, info.get("reason", error.get("status", "UNKNOWN")), error["message"], info.get("metadata")
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return BrokerRefused(status, "UNKNOWN", response.reason_phrase or "an answer that is not the broker's")
