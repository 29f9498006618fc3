"""What each configured issuer may say: algorithms, token types, the tenants it speaks for, the scopes it grants.

Compiled once from the settings by ``auth.tokens``, so that a wrong rule stops the start and not a request.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from app.auth import scopes
from app.settings import IssuerSettings, Settings

DEV_ISSUER: Final = "waystation-dev"
DEV_AUDIENCE: Final = "waystation"
TENANT: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")

# RFC 9068, 2.1; media types compare without case (RFC 7515, 4.1.9).
_ACCESS_TOKEN_TYPES = frozenset({"at+jwt", "application/at+jwt"})
_TYPES_WITH_JWT = _ACCESS_TOKEN_TYPES | {"jwt"}
_DEFAULT_MAP_CLAIM = "tenant"

Claims = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class TenantRule:
    """Where a token's tenant comes from: ``constant``, or the claim at ``path``, if need be through ``mapping``."""

    path: str = ""
    constant: str | None = None
    mapping: Mapping[str, str] | None = None

    def tenant_of(self, claims: Claims) -> str | None:
        """The tenant that the rule yields, if it is one by its form."""
        value = self.constant if self.constant is not None else _claim_at(claims, self.path)
        if not isinstance(value, str):
            return None
        if self.mapping is not None:
            value = self.mapping.get(value, "")
        return value if TENANT.fullmatch(value) else None


@dataclass(frozen=True, slots=True)
class Policy:
    """One issuer's rights. ``tenants`` None means any (dev mode); ``types`` are lower case."""

    issuer: str
    audience: str
    algorithms: frozenset[str]
    types: frozenset[str]
    rule: TenantRule
    tenants: frozenset[str] | None = None
    scopes: frozenset[str] = field(default=scopes.SCOPES)

    def tenant_of(self, claims: Claims) -> str | None:
        """The tenant this token speaks for, or None: no tenant, or one the issuer has no say over."""
        tenant = self.rule.tenant_of(claims)
        return tenant if self.tenants is None or tenant in self.tenants else None


_DEV_POLICY = Policy(
    issuer=DEV_ISSUER,
    audience=DEV_AUDIENCE,
    algorithms=frozenset({"HS256"}),
    types=_TYPES_WITH_JWT,
    rule=TenantRule(path="tenant"),
)


def policies(settings: Settings) -> dict[str, Policy]:
    """All trusted issuers by their exact ``iss``: the configured ones, or in dev mode only Waystation's own.

    Raises ValueError for a rule, tenant or scope that cannot work, or an issuer given twice.
    """
    if settings.auth_mode == "dev":
        return {DEV_ISSUER: _DEV_POLICY}
    known = {issuer.issuer: _policy(issuer) for issuer in settings.issuers}
    if len(known) != len(settings.issuers) or DEV_ISSUER in known:
        raise ValueError(f"ISSUERS: each issuer once, and {DEV_ISSUER} is reserved")
    return known


def _policy(issuer: IssuerSettings) -> Policy:
    try:
        wrong = [tenant for tenant in issuer.tenants if not TENANT.fullmatch(tenant)]
        if wrong or not issuer.audience:
            raise ValueError(f"not a tenant: {', '.join(wrong)}" if wrong else "the audience is empty")
        return Policy(
            issuer=issuer.issuer,
            audience=issuer.audience,
            algorithms=frozenset({"RS256", "ES256"}),
            types=_TYPES_WITH_JWT if issuer.allowJwtTyp else _ACCESS_TOKEN_TYPES,
            rule=parse_rule(issuer.tenantRule, issuer.tenantMap),
            tenants=frozenset(issuer.tenants),
            scopes=scopes.expand(issuer.allowedScopes),
        )
    except ValueError as error:
        raise ValueError(f"ISSUERS, {issuer.issuer}: {error}") from error


def parse_rule(text: str, tenant_map: Mapping[str, str]) -> TenantRule:
    """``claim:<path>``, ``constant:<tenant>``, ``map:<path>`` (through ``tenant_map``) or ``map:{value: tenant}``.

    A path is the name of a claim, or names joined by dots; the last form is JSON and maps the claim ``tenant``. Raises
    ValueError.
    """
    kind, _, rest = text.partition(":")
    if kind == "claim" and rest:
        return TenantRule(path=rest)
    if kind == "constant" and TENANT.fullmatch(rest):
        return TenantRule(constant=rest)
    if kind == "map" and rest.startswith("{"):
        mapping = cast("object", json.loads(rest))
        if isinstance(mapping, dict) and all(
            isinstance(value, str) for value in cast("dict[str, object]", mapping).values()
        ):
            return TenantRule(path=_DEFAULT_MAP_CLAIM, mapping=cast("dict[str, str]", mapping))
    elif kind == "map" and rest and tenant_map:
        return TenantRule(path=rest, mapping=dict(tenant_map))
    raise ValueError(f"tenantRule {text!r} is none of claim:<path>, constant:<tenant>, map:<path> with a tenantMap")


def _claim_at(claims: Claims, path: str) -> object:
    """The claim of that very name (names with dots exist: ``https://example.org/tenant``), else the nested one."""
    if path in claims:
        return claims[path]
    first, _, rest = path.partition(".")
    inner = claims.get(first)
    return _claim_at(cast("Claims", inner), rest) if rest and isinstance(inner, dict) else None
