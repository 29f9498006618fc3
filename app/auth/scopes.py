"""The scopes a token can carry. Every route and operation declares one of them; one not listed here does not exist."""

from collections.abc import Iterable
from typing import Final

SCOPES: Final = frozenset(
    {
        "tasks:read",
        "tasks:write",
        "tasks:cancel",
        "push:write",
        "agents:read",
        "agents:admin",
        "worker:lease",
        "effects:decide",
        "metrics:read",
        # A tenant's own administrator: its keys, quotas (read), deliveries and audit.
        "tenant:admin",
        # Platform-wide, and never content: states and metadata of all tenants.
        "admin",
    }
)

CLIENT_SCOPES: Final = ("push:write", "tasks:cancel", "tasks:read", "tasks:write")
"""What a client of A2A's operations may need, all of them together."""


def expand(patterns: Iterable[str]) -> frozenset[str]:
    """The scopes that an issuer's ``allowedScopes`` names; ``tasks:*`` stands for all that begin with ``tasks:``.

    Raises ValueError for an entry that names no scope, so that a typing error does not pass for a restriction.
    """
    named: set[str] = set()
    for pattern in patterns:
        prefix = pattern.removesuffix("*")
        if pattern.endswith(":*"):
            matches = {scope for scope in SCOPES if scope.startswith(prefix)}
        else:
            matches = SCOPES & {pattern}
        if not matches:
            raise ValueError(f"unknown scope {pattern!r}; known: {' '.join(sorted(SCOPES))}")
        named |= matches
    return frozenset(named)


def parse(text: str) -> frozenset[str]:
    """The known scopes in a token's space-separated ``scope``; unknown ones grant nothing and are left out."""
    return SCOPES.intersection(text.split())
