"""Who may come in: mode, keys, issuers."""

from collections.abc import AsyncIterator

from app.auth.keys import KeyStore
from app.cli.doctor.report import Finding, fail, judge, ok, warn
from app.settings import LOOPBACK_HOSTS, Settings


async def check_auth(settings: Settings) -> AsyncIterator[Finding]:
    if settings.auth_mode == "dev":
        yield _dev(settings)
    else:
        yield judge(
            bool(settings.issuers),
            "tokens",
            f"oidc, RS256 and ES256, issuers: {', '.join(issuer.issuer for issuer in settings.issuers) or 'none'}",
            "set WAYSTATION_ISSUERS; for a broker of `serve --dev`: `waystation doctor --dev`",
        )
        if settings.issuers:
            yield await _issuer_keys(settings)
    yield _signing_keys(settings)


async def _issuer_keys(settings: Settings) -> Finding:
    try:
        keys = KeyStore(settings.issuers)
    except ValueError as exc:
        return fail("issuer keys", str(exc), "issuers are https URLs")
    try:
        missing = await keys.missing()
    finally:
        await keys.aclose()
    if missing:
        return fail(
            "issuer keys", f"cannot be had: {', '.join(missing)}", "look at the issuer's URL, or set its jwksUri"
        )
    return ok("issuer keys", "fetched from every issuer")


def _dev(settings: Settings) -> Finding:
    detail = "dev mode, HS256 with the shared dev secret"
    if settings.host in LOOPBACK_HOSTS:
        return ok("tokens", f"{detail}, loopback only")
    return warn("tokens", f"{detail}, on {settings.host}", "WAYSTATION_AUTH_MODE=oidc for anything but a try")


def _signing_keys(settings: Settings) -> Finding:
    try:
        keys = settings.secret_keys()
    except ValueError:
        return fail("secret key", "WAYSTATION_SECRET_KEY is not set", "at least 32 bytes, the same on all replicas")
    if settings.secret_key is None:
        return ok("secret key", "derived from the dev secret")
    return ok("secret key", f"{len(keys)} key(s); the first signs, all verify")
