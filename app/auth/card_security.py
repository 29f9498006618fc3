"""How to get in, as agent cards say it (A2A v1.0 §4.5) when their authors say nothing. Called by ``app.main``."""

from typing import Any, Final

from app.auth.issuers import policies
from app.auth.scopes import CLIENT_SCOPES
from app.protocol.card import BEARER_TOKENS, Security
from app.settings import Settings

DISCOVERY: Final = "/.well-known/openid-configuration"


def card_security(settings: Settings) -> Security:
    """A bearer JWT; and in oidc mode, as alternatives, a login at each issuer that can grant a client's scopes.

    Only public facts: the issuer and its discovery document, not which tenants it speaks for. An issuer that is
    configured with a jwksUri may have no such document, so it is left out. Raises ValueError as ``policies`` does.
    """
    if settings.auth_mode == "dev":
        return BEARER_TOKENS
    known = policies(settings)
    schemes: dict[str, Any] = dict(BEARER_TOKENS.schemes)
    requirements = list(BEARER_TOKENS.requirements)
    for number, issuer in enumerate(settings.issuers, 1):
        granted = sorted(known[issuer.issuer].scopes.intersection(CLIENT_SCOPES))
        if not granted or issuer.jwksUri:
            continue
        url = issuer.issuer.rstrip("/") + DISCOVERY
        schemes[f"oidc{number}"] = {"openIdConnectSecurityScheme": {"openIdConnectUrl": url}}
        requirements.append({"schemes": {f"oidc{number}": {"list": granted}}})
    return Security(schemes, requirements)
