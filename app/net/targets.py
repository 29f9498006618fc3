"""What a URL says, read once and strictly. Called by ``net.egress``, which connects by the result and never reads the
URL again, so that no two readers can disagree about its host.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final, Literal, cast

from app.net.addresses import Address

MAX_CHARACTERS: Final = 2048
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}
# RFC 3986 without userinfo and fragment; path and query may have all visible ASCII but "#<>\ in them.
_URL = re.compile(
    r"(?P<scheme>https?)://"
    r"(?:\[(?P<literal>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>(?:[/?][!$-;=?-\[\]-~]*)?)",
    re.IGNORECASE | re.ASCII,  # without ASCII, ſ and K (the Kelvin sign) are letters of these too
)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# What some resolver or other takes for an IPv4 address: 127.1, 2130706433, 0x7f000001, 0177.0.0.1 (WHATWG URL, 3.5).
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class EgressRefused(Exception):
    """This URL may not be called. The text is for whoever gave the URL, and tells nothing but what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Target:
    """``host`` is a name in lower case or an address without brackets, which is then ``address`` too; ``path`` has the
    query and begins with a slash.
    """

    scheme: Literal["https", "http"]
    host: str
    port: int
    path: str
    address: Address | None

    @property
    def authority(self) -> str:
        """The value of the Host header (RFC 9110, 7.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def is_localhost(self) -> bool:
        """Whether the host is a name that RFC 6761, 6.3 gives to this machine, or hosts files commonly do."""
        label = self.host.rpartition(".")[2]
        return label in {"localhost", "localdomain", "localhost6", "ip6-localhost", "ip6-loopback"}


def parse(url: str) -> Target:
    """The target of ``url``. Raises EgressRefused unless it is an absolute http or https URL of at most 2,048 ASCII
    characters, without userinfo and fragment, whose host is a DNS name or an address in its usual form.
    """
    match = _URL.fullmatch(url) if len(url) <= MAX_CHARACTERS else None
    if match is None:
        raise EgressRefused(_what_is_wrong(url))
    scheme = cast("Literal['https', 'http']", match["scheme"].lower())
    port = int(match["port"]) if match["port"] else _DEFAULT_PORTS[scheme]
    if not 1 <= port <= 65535:
        raise EgressRefused("The URL's port is not one")
    path = match["path"]
    if not path.startswith("/"):
        path = f"/{path}"
    address = _literal(match["literal"], match["name"])
    host = str(address) if address is not None else _name(match["name"])
    return Target(scheme, host, port, path, address)


def _literal(bracketed: str | None, name: str | None) -> Address | None:
    if bracketed is not None:
        try:
            return ipaddress.IPv6Address(bracketed)
        except ValueError:
            raise EgressRefused("The URL's host is not an IPv6 address") from None
    try:
        return ipaddress.IPv4Address(name or "")
    except ValueError:
        return None


def _name(text: str) -> str:
    host = text.lower()
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels) or _NUMBER.fullmatch(labels[-1]):
        raise EgressRefused("The URL's host is neither a DNS name nor an address in its usual form")
    return host


def _what_is_wrong(url: str) -> str:
    if len(url) > MAX_CHARACTERS:
        return f"The URL has more than {MAX_CHARACTERS} characters"
    if not re.match(r"https?://", url, re.IGNORECASE):
        return "The URL must begin with https://"
    if not url.isascii() or not url.isprintable() or " " in url:
        return "The URL has characters that must be written in their ASCII form (xn--… in the host, %XX in the path)"
    if "#" in url:
        return "The URL must have no fragment"
    if "@" in re.split(r"[/?]", url[8:], maxsplit=1)[0]:
        return "The URL must have no userinfo"
    return "The URL is malformed"
