"""Which URLs are read at all, and that they are read as what they are."""

import pytest

from app.net.egress import Egress, EgressPolicy, EgressRefused
from app.net.targets import MAX_CHARACTERS, parse
from app.settings import Settings

LITERALS_OF_THIS_MACHINE = [
    "https://127.0.0.1/",
    "https://127.0.0.1:8443/",
    "https://127.255.255.254/",
    "https://0.0.0.0/",
    "https://0.1.2.3/",
    "https://[::1]/",
    "https://[::]/",
    "https://[0:0:0:0:0:0:0:1]/",
    "https://[0000:0000:0000:0000:0000:0000:0000:0001]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://[::127.0.0.1]/",
    "https://[::7f00:1]/",
    "https://[::ffff:0:127.0.0.1]/",
    "https://[64:ff9b::127.0.0.1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[64:ff9b:1::127.0.0.1]/",
    "https://[2002:7f00:1::]/",
    "https://[2001:0:4136:e378:8000:63bf:80ff:fffe]/",
]
NUMBERS = [
    "https://127.1/",
    "https://127.0.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7F.0.0.1/",
    "https://0x/",
    "https://127.0.0.0x1/",
    "https://0177.0.0.1/",
    "https://127.0.0.01/",
    "https://017700000001/",
    "https://127.0.0.256/",
    "https://127.0.0.0.1/",
    "https://4294967297/",
    "https://1.2.3/",
    "https://example.123/",
    "https://example.0x7f/",
]
LOCAL_NAMES = [
    "https://localhost/",
    "https://LOCALHOST/",
    "https://LocalHost:8443/",
    "https://a.localhost/",
    "https://localhost.localdomain/",
    "https://localhost6/",
    "https://ip6-localhost/",
    "https://ip6-loopback/",
]
MALFORMED = [
    "",
    " ",
    "/path",
    "//example.com/",
    "example.com",
    "example.com:443",
    "https:",
    "https:/example.com/",
    "https://",
    "https:///",
    "https:///path",
    "https:example.com",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1/",
    "ws://example.com/",
    "data:text/plain,x",
    "javascript:alert(1)",
    "httpſ://example.com/",
    " https://example.com/",
    "https://example.com/ ",
    "https://example.com/a b",
    "https://example.com/\r\nX: y",
    "https://exa\r\nmple.com/",
    "https://exa\x00mple.com/",
    "https://example.com/\t",
    "https://example.com/é",
    "https://user@example.com/",
    "https://user:password@example.com/",
    "https://@example.com/",
    "https://example.com@127.0.0.1/",
    "https://example.com:443@127.0.0.1/",
    "https://127.0.0.1\\@example.com/",
    "https://example.com\\@127.0.0.1/",
    "https://example.com\\.evil.com/",
    "https://example.com/a\\b",
    "https://example.com/#fragment",
    "https://example.com#",
    "https://example.com#@127.0.0.1/",
    "https://example.com:/",
    "https://example.com:0/",
    "https://example.com:65536/",
    "https://example.com:999999/",
    "https://example.com:+443/",
    "https://example.com:-1/",
    "https://example.com:4 43/",
    "https://example.com:port/",
    "https://example.com:443:443/",
    "https://example.com./",
    "https://127.0.0.1./",
    "https://localhost./",
    "https://.example.com/",
    "https://example..com/",
    "https://-example.com/",
    "https://example-.com/",
    "https://exa%6dple.com/",
    "https://127%2e0%2e0%2e1/",
    "https://exa*mple.com/",
    "https://bücher.example/",
    "https://１２７.０.０.１/",
    "https://127。0。0。1/",
    "https://①②⑦.0.0.1/",
    "https://loCa\u212ahost/",
    "https://[::1/",
    "https://::1/",
    "https://[::1]x/",
    "https://[]/",
    "https://[1.2.3.4]/",
    "https://[example.com]/",
    "https://[fe80::1%25eth0]/",
    "https://[fe80::1%eth0]/",
    "https://[2606:4700::1111%25eth0]/",
    "https://[v1.example]/",
    "https://[:::1]/",
    "https://[1:2:3:4:5:6:7:8:9]/",
    "https://[::ffff:127.0.0.01]/",
    f"https://{'a' * 64}.com/",
    f"https://{'.'.join(['a' * 60] * 5)}/",
    f"https://example.com/{'a' * MAX_CHARACTERS}",
]


@pytest.mark.parametrize("url", LITERALS_OF_THIS_MACHINE + NUMBERS + LOCAL_NAMES + MALFORMED)
async def test_urls_that_are_never_called(url: str) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise AssertionError(f"{host} was looked up")

    egress = Egress(EgressPolicy(), resolve=resolve)
    with pytest.raises(EgressRefused) as refusal:
        egress.check(url)
    assert len(str(refusal.value)) < 120, "the text is for a caller: short, without the URL in it"
    with pytest.raises(EgressRefused):
        await egress.vet(url)
    with pytest.raises(EgressRefused):
        await egress.request("GET", url, headers={})


@pytest.mark.parametrize("url", NUMBERS + MALFORMED)
def test_nothing_but_its_own_spelling_opens_an_allowed_range(url: str) -> None:
    everything = EgressPolicy.of(Settings(egress_allow_cidrs=["0.0.0.0/0", "::/0"]))
    with pytest.raises(EgressRefused):
        Egress(everything).check(url)


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "authority"),
    [
        ("https://example.com", "example.com", 443, "/", "example.com"),
        ("HTTPS://EXAMPLE.com:443/", "example.com", 443, "/", "example.com"),
        ("https://example.com:8443/a/b?c=d", "example.com", 8443, "/a/b?c=d", "example.com:8443"),
        ("https://example.com?x=/../@:", "example.com", 443, "/?x=/../@:", "example.com"),
        (
            "https://example.com/a@b:c/%00%2e;=,'[]{}|^`~",
            "example.com",
            443,
            "/a@b:c/%00%2e;=,'[]{}|^`~",
            "example.com",
        ),
        ("http://example.com/", "example.com", 80, "/", "example.com"),
        ("http://example.com:443/", "example.com", 443, "/", "example.com:443"),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", 443, "/", "xn--bcher-kva.example"),
        ("https://a_b.example/", "a_b.example", 443, "/", "a_b.example"),
        ("https://receiver:8443/", "receiver", 8443, "/", "receiver:8443"),
        ("https://127.0.0.1.nip.io/", "127.0.0.1.nip.io", 443, "/", "127.0.0.1.nip.io"),
        ("https://1.1.1.1:8443/x", "1.1.1.1", 8443, "/x", "1.1.1.1:8443"),
        ("https://[2606:4700:0:0::1111]:8443/x", "2606:4700::1111", 8443, "/x", "[2606:4700::1111]:8443"),
        ("https://kiosk.example/s", "kiosk.example", 443, "/s", "kiosk.example"),
    ],
)
def test_urls_that_are_read(url: str, host: str, port: int, path: str, authority: str) -> None:
    target = parse(url)
    assert (target.host, target.port, target.path, target.authority) == (host, port, path, authority)
