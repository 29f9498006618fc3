"""A2A-Version and A2A-Extensions."""

import pytest

from app.errors import VersionNotSupported
from app.protocol.version import negotiate, parse_extensions


@pytest.mark.parametrize("value", ["1.0", "1.0.0", "1.0.17", " 1.0 ", "01.0"])
def test_major_and_minor_count_and_the_patch_does_not(value: str) -> None:
    assert negotiate(value) == "1.0"


def test_the_query_parameter_counts_where_the_header_is_empty() -> None:
    assert negotiate(None, "1.0") == negotiate("", "1.0.1") == negotiate("1.0", "99.0") == "1.0"
    with pytest.raises(VersionNotSupported):
        negotiate("99.0", "1.0")


@pytest.mark.parametrize("value", [None, "", "  "])
def test_empty_means_0_3(value: str | None) -> None:
    assert negotiate(value, supported=("0.3",)) == "0.3"
    with pytest.raises(VersionNotSupported, match=r"Without A2A-Version .*0\.3; send the header A2A-Version: 1\.0"):
        negotiate(value)


@pytest.mark.parametrize(
    "value",
    ["0.3", "99.0", "1.1", "2.0", "1", "1.", ".0", "v1.0", "1.0-beta", "1.0.0.0", "1,0", "١.٠", "1.0, 1.0", "x" * 999],
)
def test_all_else_is_refused_with_the_header_to_send(value: str) -> None:
    with pytest.raises(VersionNotSupported, match=r"send the header A2A-Version: 1\.0$") as refused:
        negotiate(value)
    assert refused.value.metadata == {"requested": value[:32], "supported": "1.0"}
    assert len(refused.value.message) < 120


@pytest.mark.parametrize(
    ("values", "uris"),
    [
        ((None,), ()),
        (("",), ()),
        ((" , ,",), ()),
        (("https://a/x",), ("https://a/x",)),
        (("https://b, https://a ,https://b",), ("https://b", "https://a")),
        (("https://a", None, "https://b,https://a"), ("https://a", "https://b")),
    ],
)
def test_extensions_are_a_comma_list(values: tuple[str | None, ...], uris: tuple[str, ...]) -> None:
    assert parse_extensions(*values) == uris
