"""Which IP addresses the public Internet is. Called by ``net.policy`` for every address a URL leads to.

The table is our own, not ``ipaddress.is_global``: that one follows the Python release, calls several addresses global
behind which a private one may stand, and knows nothing of the metadata services of the clouds.
"""

import ipaddress
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# IANA IPv4 Special-Purpose Address Registry, with multicast and the reserved block.
_NOT_PUBLIC_V4: Final = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers (CGNAT)
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, where metadata services live
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays from 6to4
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, limited broadcast
    )
)
# All global unicast is in here. Loopback, mapped, translated, unique local, link-local, site-local, SRv6, discard and
# multicast are not, and neither is what IANA has yet to give out.
_GLOBAL_V6: Final = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_V6: Final = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks, drone ids
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: a tunnel to any IPv4 address; withdrawn by RFC 7526
        "3fff::/20",  # documentation
    )
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")

METADATA: Final[frozenset[Address]] = frozenset(
    ipaddress.ip_address(address)
    for address in (
        "169.254.169.254",  # most clouds
        "168.63.129.16",  # Azure, a public address
        "192.0.0.192",  # Oracle
        "100.100.100.200",  # Alibaba
        "fd00:ec2::254",  # AWS
        "169.254.170.2",  # AWS, containers
        "169.254.170.23",  # AWS, pods
        "fd00:ec2::23",  # AWS, pods
        "fd20:ce::254",  # Google
    )
)
"""Where clouds give credentials to whoever asks: never called, not even if an allowed range contains them."""


def destination(address: Address) -> Address:
    """Where packets to ``address`` end: the IPv4 address within an IPv4-mapped (RFC 4291, 2.5.5.2) or NAT64 (RFC 6052)
    one, the address itself otherwise. Behind a DNS64 resolver every IPv4 host of the Internet has a NAT64 address.
    """
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_public(address: Address) -> bool:
    """Whether ``address``, a ``destination``, is a unicast address of the Internet and no cloud's metadata service."""
    if address in METADATA:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_V4)
    return address in _GLOBAL_V6 and not any(address in network for network in _NOT_PUBLIC_V6)
