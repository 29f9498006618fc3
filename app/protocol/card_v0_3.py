"""What A2A 0.3 reads in an agent card, beside 1.0's fields in the same JSON (0.3 §5.5): one document for both.

A 1.0 client drops the fields it does not know, a 0.3 client likewise, and where both know one (capabilities, skills,
signatures) the value is right for both. Called by the card doors and by those of 0.3.
"""

from collections.abc import Mapping
from typing import Any, Final

from app.protocol.version import V0_3

PROTOCOL_VERSION: Final = "0.3.0"
"""0.3 names itself with the patch number (0.3 §5.5)."""

_TYPES: Final = {
    "apiKeySecurityScheme": "apiKey",
    "httpAuthSecurityScheme": "http",
    "oauth2SecurityScheme": "oauth2",
    "openIdConnectSecurityScheme": "openIdConnect",
    "mtlsSecurityScheme": "mutualTLS",
}
_LOCATIONS: Final = frozenset({"cookie", "header", "query"})
_FLOWS: Final[Mapping[str, Mapping[str, Any]]] = {
    "authorizationCode": {"scopes": {}},
    "clientCredentials": {"scopes": {}},
    "implicit": {"scopes": {}, "authorizationUrl": ""},
    "password": {"scopes": {}, "tokenUrl": ""},
}
"""0.3's flows, with what it requires and 1.0 leaves out when it is empty. It knows no device code."""


def with_v0_3(card: Mapping[str, Any]) -> dict[str, Any]:
    """A served AgentCard (1.0, with 0.3 interfaces) together with 0.3's fields; ``card`` is not changed.

    ``url`` is the first 0.3 interface's, and ``additionalInterfaces`` lists them all. Securities that 0.3 cannot say
    are approximated, so that its clients can read the rest of the card.
    """
    doors = [door for door in card["supportedInterfaces"] if door["protocolVersion"] == V0_3]
    merged = {
        **card,
        "protocolVersion": PROTOCOL_VERSION,
        "url": doors[0]["url"],
        "preferredTransport": doors[0]["protocolBinding"],
        "additionalInterfaces": [{"url": door["url"], "transport": door["protocolBinding"]} for door in doors],
        "skills": [_with_security(skill) for skill in card["skills"]],
    }
    if card["capabilities"].get("extendedAgentCard"):
        merged["supportsAuthenticatedExtendedCard"] = True
    if schemes := card.get("securitySchemes"):
        merged["securitySchemes"] = {name: {**scheme, **_scheme(scheme)} for name, scheme in schemes.items()}
    return _with_security(merged)


def _with_security(holder: Mapping[str, Any]) -> dict[str, Any]:
    """``security`` beside ``securityRequirements``, of a card or a skill."""
    requirements = holder.get("securityRequirements")
    if not requirements:
        return dict(holder)
    security = [
        {name: scopes.get("list", []) for name, scopes in requirement.get("schemes", {}).items()}
        for requirement in requirements
    ]
    return {**holder, "security": security}


def _scheme(scheme: Mapping[str, Any]) -> dict[str, Any]:
    """A 1.0 SecurityScheme, which is a oneof, as 0.3's flat one with its ``type``."""
    name, content = next((name, content) for name, content in scheme.items() if name in _TYPES)
    flat: dict[str, Any] = {**content, "type": _TYPES[name]}
    if name == "apiKeySecurityScheme":
        location = flat.pop("location").lower()
        flat["in"] = location if location in _LOCATIONS else "header"
    if name == "oauth2SecurityScheme":
        flat["flows"] = {flow: {**_FLOWS[flow], **said} for flow, said in content["flows"].items() if flow in _FLOWS}
    return flat
