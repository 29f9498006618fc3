"""Which addresses may be called, and what an allowed range changes."""

import pytest

from app.net.egress import Egress, EgressPolicy, EgressRefused, OperatorPolicy
from app.settings import Settings

NOT_PUBLIC = [
    "0.0.0.0",
    "0.255.255.255",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.255",
    "169.254.0.1",
    "169.254.255.255",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.8",
    "192.0.0.9",
    "192.0.0.170",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "192.168.255.255",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::2",
    "::8.8.8.8",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:8.8.8.8",
    "64:ff9b::10.0.0.1",
    "64:ff9b::192.168.0.1",
    "64:ff9b:1::8.8.8.8",
    "64:ff9b:1:ffff::1",
    "100::1",
    "100:0:0:1::1",
    "1000::1",
    "2001::1",
    "2001:0:808:808::1",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2001:30::1",
    "2001:1ff::1",
    "2001:db8::1",
    "2002:808:808::1",
    "2002:a00:1::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd00::1",
    "fdff:ffff::1",
    "fe80::1",
    "fe80::1%eth0",
    "febf::1",
    "fec0::1",
    "feff::1",
    "ff00::1",
    "ff02::1",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
]
METADATA = [
    "169.254.169.254",
    "168.63.129.16",
    "192.0.0.192",
    "100.100.100.200",
    "fd00:ec2::254",
    "169.254.170.2",
    "169.254.170.23",
    "fd00:ec2::23",
    "fd20:ce::254",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::168.63.129.16",
]
PUBLIC = [
    "1.1.1.1",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "168.63.129.17",
    "169.253.255.255",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "::ffff:1.1.1.1",
    "64:ff9b::1.1.1.1",
    "2001:200::1",
    "2003::1",
    "2606:4700::1111",
    "2a00:1450::1",
]


def resolving_to(*addresses: str, policy: EgressPolicy | OperatorPolicy | None = None) -> Egress:
    async def resolve(host: str, port: int) -> list[str]:
        return list(addresses)

    return Egress(policy or EgressPolicy(), resolve=resolve)


def allowing(*cidrs: str) -> EgressPolicy:
    return EgressPolicy.of(Settings(egress_allow_cidrs=list(cidrs)))


def as_url(address: str) -> str:
    return f"https://[{address}]/" if ":" in address else f"https://{address}/"


@pytest.mark.parametrize("address", NOT_PUBLIC + METADATA)
async def test_addresses_that_are_not_called(address: str) -> None:
    with pytest.raises(EgressRefused) as refusal:
        await resolving_to(address).vet("https://example.com/")
    assert address not in str(refusal.value), "what internal names resolve to is nobody's business"
    with pytest.raises(EgressRefused):
        await resolving_to("1.1.1.1", address).vet("https://example.com/")
    with pytest.raises(EgressRefused):
        await resolving_to(address, "1.1.1.1").request("GET", "https://example.com/", headers={})
    with pytest.raises(EgressRefused):
        Egress(EgressPolicy()).check(as_url(address))


@pytest.mark.parametrize("address", PUBLIC)
async def test_addresses_that_are_called(address: str) -> None:
    await resolving_to("1.1.1.1", address).vet("https://example.com/")
    Egress(EgressPolicy()).check(as_url(address))


@pytest.mark.parametrize("address", METADATA)
async def test_no_allowed_range_opens_a_metadata_service(address: str) -> None:
    policy = allowing("0.0.0.0/0", "::/0", "169.254.169.254/32", "fd00:ec2::254/128")
    with pytest.raises(EgressRefused):
        await resolving_to(address, policy=policy).vet("https://example.com/")
    with pytest.raises(EgressRefused):
        Egress(policy).check(as_url(address))


async def test_an_allowed_range_lifts_address_scheme_and_port() -> None:
    policy = allowing("10.1.0.0/16", "fd12::/16")
    inside = resolving_to("10.1.2.3", "fd12::1", policy=policy)
    for url in ("https://example.com/", "http://example.com/", "http://example.com:9000/", "https://example.com:22/"):
        inside.check(url)
        await inside.vet(url)
    for url in ("http://10.1.2.3:9000/", "http://[fd12::1]:9000/", "http://[::ffff:10.1.2.3]:9000/"):
        inside.check(url)


@pytest.mark.parametrize("url", ["http://example.com/", "https://example.com:9000/", "http://example.com:9000/"])
async def test_a_public_address_keeps_its_rules_beside_an_allowed_range(url: str) -> None:
    policy = allowing("10.1.0.0/16")
    for addresses in (["1.1.1.1"], ["10.1.2.3", "1.1.1.1"], ["1.1.1.1", "10.1.2.3"]):
        with pytest.raises(EgressRefused, match=r"port|https"):
            await resolving_to(*addresses, policy=policy).vet(url)
    with pytest.raises(EgressRefused, match="public"):
        await resolving_to("10.1.2.3", "10.2.0.1", policy=policy).vet(url)


@pytest.mark.parametrize("url", ["http://localhost:9000/", "https://localhost/", "http://a.localhost/"])
async def test_localhost_by_name_goes_with_its_addresses(url: str) -> None:
    with pytest.raises(EgressRefused):
        Egress(allowing("10.0.0.0/8")).check(url)
    for loopback in ("127.0.0.0/8", "::1/128"):
        Egress(allowing(loopback)).check(url)
    await resolving_to("127.0.0.1", "::1", policy=allowing("127.0.0.0/8", "::1/128")).vet(url)
    with pytest.raises(EgressRefused):
        await resolving_to("127.0.0.1", "::1", policy=allowing("127.0.0.0/8")).vet(url)


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("http://example.com/", True),
        ("http://example.com:80/", True),
        ("http://example.com:8443/", True),
        ("http://1.1.1.1/", True),
        ("https://example.com:80/", False),
        ("http://example.com:8080/", False),
        ("http://10.0.0.1/", False),
    ],
)
def test_http_where_it_is_allowed(url: str, *, good: bool) -> None:
    egress = Egress(EgressPolicy.of(Settings(egress_allow_http=True)))
    if good:
        egress.check(url)
    else:
        with pytest.raises(EgressRefused):
            egress.check(url)


@pytest.mark.parametrize("url", ["http://example.com/", "https://example.com:80/", "https://example.com:22/"])
def test_scheme_and_port_are_judged_before_a_name_is_looked_up(url: str) -> None:
    with pytest.raises(EgressRefused):
        Egress(EgressPolicy()).check(url)


@pytest.mark.parametrize("cidr", ["10.0.0.1/8", "10.0.0.0/33", "example.com", "fe80::1%eth0/64", "10.0.0.0-10.0.0.9"])
def test_what_is_no_range_stops_the_start(cidr: str) -> None:
    with pytest.raises(ValueError, match="EGRESS_ALLOW_CIDRS"):
        allowing("10.0.0.0/8", cidr)


async def test_a_name_that_does_not_resolve_yet_may_be_registered() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    await Egress(EgressPolicy(), resolve=resolve).vet("https://soon.example.com/")
    await resolving_to().vet("https://soon.example.com/")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9:81", "[::1]:81", "localhost:81"])
def test_the_operators_own_urls_are_http_on_this_machine_only(host: str) -> None:
    Egress(OperatorPolicy()).check(f"http://{host}/")


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "http://192.168.0.1/",
        "http://0.0.0.0/",
        "http://169.254.169.254/latest/meta-data",
        "http://localhost.example.com/",
        "http://127.0.0.1.example.com/",
        "https://user:password@example.com/",
    ],
)
def test_the_operators_own_urls_are_https_elsewhere(url: str) -> None:
    with pytest.raises(EgressRefused):
        Egress(OperatorPolicy()).check(url)


async def test_the_operators_own_urls_may_be_of_a_private_network() -> None:
    Egress(OperatorPolicy()).check("https://10.0.0.1:9443/")
    await resolving_to("10.0.0.1", policy=OperatorPolicy()).vet("https://idp.internal:9443/")
    with pytest.raises(EgressRefused):
        await resolving_to("10.0.0.1", policy=OperatorPolicy()).vet("http://localhost/")
