"""Whom the broker calls. ``net.egress`` asks twice: what the URL alone shows, then each address its host has.

EgressPolicy     URLs that clients and agents' owners give: webhooks, agent cards, dispatch
OperatorPolicy   URLs of the operator's own settings: the issuers (docs/decisions/operator-urls.md)
"""

import ipaddress
from dataclasses import dataclass
from typing import Protocol

from app.net.addresses import METADATA, Address, Network, destination, is_public
from app.net.targets import EgressRefused, Target
from app.settings import Settings

_LOOPBACK = (ipaddress.IPv4Address("127.0.0.1"), ipaddress.IPv6Address("::1"))
_NOT_PUBLIC = "The URL's host is not on the public Internet, nor in WAYSTATION_EGRESS_ALLOW_CIDRS"


class Policy(Protocol):
    """Both raise EgressRefused."""

    def check_target(self, target: Target) -> None:
        """Judge what the URL alone shows; a name is only refused here if no address could make it good."""
        ...

    def check_address(self, target: Target, address: Address) -> None:
        """Judge one address of the target's host."""
        ...


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """The public Internet by https on ``ports``; ``allow_http`` admits http as well, on port 80 too.

    An address in ``allow_cidrs`` may be called whatever it is, by http and on every port; only the clouds' metadata
    services may not.
    """

    allow_http: bool = False
    allow_cidrs: tuple[Network, ...] = ()
    ports: frozenset[int] = frozenset({443, 8443})

    @classmethod
    def of(cls, settings: Settings) -> "EgressPolicy":
        """The policy of ``EGRESS_ALLOW_HTTP`` and ``EGRESS_ALLOW_CIDRS``. Raises ValueError for what is no CIDR."""
        try:
            networks = tuple(ipaddress.ip_network(cidr) for cidr in settings.egress_allow_cidrs)
        except ValueError as error:
            raise ValueError(f"EGRESS_ALLOW_CIDRS: {error}") from error
        return cls(allow_http=settings.egress_allow_http, allow_cidrs=networks)

    def check_target(self, target: Target) -> None:
        """See Policy."""
        if target.address is not None:
            self.check_address(target, target.address)
        elif target.is_localhost:
            if not any(self._is_allowed(address) for address in _LOOPBACK):
                raise EgressRefused(_NOT_PUBLIC)
        elif not self.allow_cidrs:
            self._check_scheme_and_port(target)

    def check_address(self, target: Target, address: Address) -> None:
        """See Policy."""
        end = destination(address)
        if end in METADATA:
            raise EgressRefused(_NOT_PUBLIC)
        if self._is_allowed(end):
            return
        if not is_public(end):
            raise EgressRefused(_NOT_PUBLIC)
        self._check_scheme_and_port(target)

    def _is_allowed(self, address: Address) -> bool:
        return any(address in network for network in self.allow_cidrs)

    def _check_scheme_and_port(self, target: Target) -> None:
        if target.scheme == "http" and not self.allow_http:
            raise EgressRefused("The URL must begin with https://")
        if target.port not in self.ports and not (target.scheme == "http" and target.port == 80):
            raise EgressRefused(f"The URL's port must be one of {', '.join(map(str, sorted(self.ports)))}")


@dataclass(frozen=True, slots=True)
class OperatorPolicy:
    """https to every address and port; http to this machine only."""

    def check_target(self, target: Target) -> None:
        """See Policy."""
        if target.address is not None:
            self.check_address(target, target.address)
        elif target.scheme == "http" and target.host != "localhost":
            raise EgressRefused("https is required")

    def check_address(self, target: Target, address: Address) -> None:
        """See Policy."""
        if target.scheme == "http" and not address.is_loopback:
            raise EgressRefused("https is required")
