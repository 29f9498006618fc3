"""The verification keys of each configured issuer, fetched and kept fresh. Called by ``auth.tokens`` for every token.

One issuer's life cycle (security.md, Tokens):

    no keys ──fetch──> fresh ──80 % of the TTL──> refreshed in the background
                         │ TTL over: a lookup waits for the refresh
                         └ the refresh fails: the old keys serve 3600 s longer, then Unavailable

A fetch replaces the whole set, so a kid that is gone from it dies at once. There is never more than one fetch of an
issuer under way; a kid that is not in the set causes at most one fetch in 30 s.
"""

import asyncio
import logging
import re
import time
from collections.abc import Mapping, Sequence
from typing import Final, cast

from app.auth.jwks import InvalidKeySet, VerificationKey, parse_jwks
from app.clock import Clock
from app.errors import ParseError, Unavailable
from app.net.egress import Answer, Egress, EgressFailed, EgressRefused, OperatorPolicy
from app.protocol import strict_json
from app.settings import IssuerSettings

FETCH_SECONDS: Final = 5.0
FETCH_BYTES: Final = 256 * 1024
MIN_TTL, DEFAULT_TTL, MAX_TTL = 60.0, 300.0, 3600.0
REFRESH_AHEAD: Final = 0.8
STALE_IF_ERROR: Final = 3600.0
UNKNOWN_KID_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 5.0

_MAX_AGE = re.compile(r"max-age\s*=\s*\"?(\d{1,9})")

log = logging.getLogger(__name__)


class KeyStore:
    """The keys of all configured issuers. ``clock`` only needs to run evenly; ``aclose`` ends fetches under way."""

    def __init__(self, issuers: Sequence[IssuerSettings], *, clock: Clock = time.monotonic) -> None:
        """Raises ValueError for an issuer whose URL is neither https nor http on loopback."""
        self._egress = Egress(OperatorPolicy())
        self._issuers = {issuer.issuer: _IssuerKeys(issuer, self._egress, clock) for issuer in issuers}

    async def find(self, issuer: str, kid: str) -> VerificationKey | None:
        """The key that ``issuer`` publishes under ``kid``, or None.

        ``issuer`` is one of the configured ones (KeyError otherwise): no URL ever comes from a token. Raises
        Unavailable with ``retry_after`` while the issuer's keys cannot be had.
        """
        return await self._issuers[issuer].find(kid)

    async def missing(self) -> list[str]:
        """The issuers whose keys have never been had; each is asked now, unless that failed moments ago."""
        return [issuer for issuer, keys in self._issuers.items() if not await keys.had_once()]

    async def aclose(self) -> None:
        """Cancel the fetches under way. Idempotent."""
        for keys in self._issuers.values():
            await keys.aclose()
        await self._egress.aclose()


class _IssuerKeys:
    def __init__(self, issuer: IssuerSettings, egress: Egress, clock: Clock) -> None:
        self._issuer = issuer
        self._egress = egress
        self._clock = clock
        self._keys: Mapping[str, VerificationKey] = {}
        self._generation = 0
        self._ttl = 0.0
        self._fetched_at = float("-inf")
        self._failed_at = float("-inf")
        self._failing = False
        self._unknown_kid_at = float("-inf")
        self._fetch: asyncio.Task[None] | None = None
        try:
            egress.check(issuer.jwksUri or issuer.issuer)
        except EgressRefused as error:
            raise ValueError(f"ISSUERS: {issuer.jwksUri or issuer.issuer!r}: {error}") from error

    async def find(self, kid: str) -> VerificationKey | None:
        generation = self._generation
        await self._ensure()
        if kid not in self._keys and generation == self._generation:
            # Nothing was fetched since the lookup began, so the kid may be newer than the set.
            await self._refresh_for_unknown_kid()
        return self._keys.get(kid)

    async def had_once(self) -> bool:
        if self._generation == 0 and (fetch := self._refresh()) is not None:
            await asyncio.shield(fetch)
        return self._generation > 0

    async def aclose(self) -> None:
        if self._fetch is not None:
            self._fetch.cancel()
            await asyncio.wait([self._fetch])

    async def _ensure(self) -> None:
        """Return when there are keys to judge by; raise Unavailable when there are none."""
        age = self._clock() - self._fetched_at
        if age < self._ttl * REFRESH_AHEAD:
            return
        fetch = self._refresh()
        too_old = age >= self._ttl + STALE_IF_ERROR
        # While the issuer is failing the old keys serve at once: not every lookup should wait out its time limit.
        if fetch is not None and (too_old or (age >= self._ttl and not self._failing)):
            await asyncio.shield(fetch)
        if self._clock() - self._fetched_at >= self._ttl + STALE_IF_ERROR:
            raise Unavailable("The identity provider's keys cannot be fetched", retry_after=RETRY_SECONDS)

    async def _refresh_for_unknown_kid(self) -> None:
        if self._fetch is None:
            if self._clock() - self._unknown_kid_at < UNKNOWN_KID_SECONDS:
                return
            self._unknown_kid_at = self._clock()
        fetch = self._refresh()
        if fetch is not None:
            await asyncio.shield(fetch)

    def _refresh(self) -> asyncio.Task[None] | None:
        """The fetch under way, a new one if there is none, or None when one failed moments ago."""
        if self._fetch is None and self._clock() - self._failed_at >= RETRY_SECONDS:
            self._fetch = asyncio.create_task(self._fetch_keys(), name=f"jwks {self._issuer.issuer}")
        return self._fetch

    async def _fetch_keys(self) -> None:
        started = self._clock()
        try:
            self._keys, self._ttl = await self._download()
            self._generation += 1
            self._fetched_at, self._failing = started, False
        except Exception as error:
            # Whatever a foreign document can break, the lookups that wait must get their answer.
            self._failed_at, self._failing = self._clock(), True
            log.warning("keys of %s not fetched: %s: %s", self._issuer.issuer, type(error).__name__, error)
        finally:
            self._fetch = None

    async def _download(self) -> tuple[dict[str, VerificationKey], float]:
        url = self._issuer.jwksUri or await self._discover()
        answer = await self._get(url)
        return parse_jwks(answer.body), _ttl(answer.headers)

    async def _discover(self) -> str:
        """OpenID Connect Discovery 1.0, 4.1 and 4.3: the document must name exactly the issuer it was asked of."""
        url = self._issuer.issuer.rstrip("/") + "/.well-known/openid-configuration"
        answer = await self._get(url)
        try:
            document = strict_json.loads(answer.body)
        except ParseError as error:
            raise InvalidKeySet(f"{url}: {error.message}") from error
        members = cast("dict[str, object]", document) if isinstance(document, dict) else {}
        if members.get("issuer") != self._issuer.issuer:
            raise InvalidKeySet(f"{url} speaks for another issuer: {members.get('issuer')!r}")
        jwks_uri = members.get("jwks_uri")
        if not isinstance(jwks_uri, str):
            raise InvalidKeySet(f"{url} has no jwks_uri")
        return jwks_uri

    async def _get(self, url: str) -> Answer:
        try:
            answer = await self._egress.request(
                "GET",
                url,
                headers={"Accept": "application/json"},
                timeout=FETCH_SECONDS,
                max_bytes=FETCH_BYTES,
                read_all=True,
                purpose="keys",
            )
        except EgressFailed as error:
            raise InvalidKeySet(f"{url}: {error.kind}: {error.detail}") from error
        if answer.status != 200 or answer.headers.get("content-encoding", "identity").lower() != "identity":
            raise InvalidKeySet(f"{url}: status {answer.status}, or compressed although that was not asked for")
        return answer


def _ttl(headers: Mapping[str, str]) -> float:
    cache_control = headers.get("cache-control", "").lower()
    if "no-store" in cache_control or "no-cache" in cache_control:
        return MIN_TTL
    max_age = _MAX_AGE.search(cache_control)
    return min(max(float(max_age[1]), MIN_TTL), MAX_TTL) if max_age else DEFAULT_TTL
