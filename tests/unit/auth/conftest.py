"""A running issuer, a verifier that trusts it, and a forge for its tokens."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from app.auth.caller import Caller
from app.auth.keys import KeyStore
from app.auth.tokens import TokenVerifier
from app.errors import Unauthenticated
from app.settings import IssuerSettings, Settings
from tests.support.oidc import AUDIENCE, Forge, OidcServer, ec_jwk, rsa_jwk


@dataclass
class Verification:
    """A verifier with what it reported."""

    verifier: TokenVerifier
    failures: list[str]

    async def caller(self, token: str) -> Caller:
        return await self.verifier.verify(f"Bearer {token}")

    async def refusal(self, authorization: str | None) -> str:
        """The counted reason of a refusal, which must look like any other one."""
        self.failures.clear()
        with pytest.raises(Unauthenticated) as raised:
            await self.verifier.verify(authorization)
        assert vars(raised.value) == vars(Unauthenticated())
        assert raised.value.__cause__ is None
        [reason] = self.failures
        return reason


def oidc_settings(*issuers: IssuerSettings) -> Settings:
    return Settings(auth_mode="oidc", issuers=list(issuers))


def trusting(settings: Settings, keys: KeyStore, clock: float | None = None) -> Verification:
    """A verifier whose own clock stands still at ``clock``, or runs."""
    failures: list[str] = []
    tick = time.time if clock is None else lambda: clock
    return Verification(TokenVerifier(settings, keys, tick, failures.append), failures)


def issuer_settings(server: OidcServer, **changes: object) -> IssuerSettings:
    given = {"issuer": server.issuer, "audience": AUDIENCE, "tenantRule": "claim:tenant", "tenants": ["a"]}
    return IssuerSettings.model_validate(given | changes)


@pytest_asyncio.fixture
async def idp() -> AsyncIterator[OidcServer]:
    """An issuer with an RSA key ``rsa`` and a P-256 key ``ec``."""
    async with OidcServer(keys=[rsa_jwk("rsa"), ec_jwk("ec")]) as server:
        yield server


@pytest_asyncio.fixture
async def other_idp() -> AsyncIterator[OidcServer]:
    """A second trusted issuer, which speaks for tenant b only and publishes a key ``other``."""
    async with OidcServer(keys=[rsa_jwk("other")]) as server:
        yield server


@pytest.fixture
def forge(idp: OidcServer) -> Forge:
    return Forge(idp.issuer)


@pytest_asyncio.fixture
async def trust(idp: OidcServer, other_idp: OidcServer) -> AsyncIterator[Verification]:
    """Trusts ``idp`` for tenant a and ``other_idp`` for tenant b."""
    settings = oidc_settings(issuer_settings(idp), issuer_settings(other_idp, tenants=["b"]))
    keys = KeyStore(settings.issuers)
    yield trusting(settings, keys)
    await keys.aclose()
