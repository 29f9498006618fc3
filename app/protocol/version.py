"""The service parameters of A2A v1.0 §3.2.6 and §3.6: ``A2A-Version`` and ``A2A-Extensions``. Called by the doors."""

import re
from collections.abc import Iterable
from typing import Final

from app.errors import VersionNotSupported

VERSION_HEADER: Final = "A2A-Version"
EXTENSIONS_HEADER: Final = "A2A-Extensions"
V1_0: Final = "1.0"
V0_3: Final = "0.3"
"""What an absent or empty version means (§3.6.2)."""

_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.\d{1,9})?", re.ASCII)
_SHOWN_CHARACTERS = 32


def negotiate(header: str | None, query: str | None = None, *, supported: Iterable[str] = (V1_0,)) -> str:
    """The version to answer in, as ``Major.Minor``: the header's, else the query parameter's, else 0.3.

    The patch number is ignored. Raises VersionNotSupported, whose text says which header to send.
    """
    asked = (header or "").strip() or (query or "").strip()
    supported = tuple(supported)
    if asked in supported:
        return asked
    match = _VERSION.fullmatch(asked)
    version = f"{int(match[1])}.{int(match[2])}" if match else asked or V0_3
    if version in supported:
        return version
    shown = asked[:_SHOWN_CHARACTERS]
    said = (
        f"A2A version {shown!r} is not supported here" if asked else f"Without {VERSION_HEADER} the version is {V0_3}"
    )
    raise VersionNotSupported(
        f"{said}; send the header {VERSION_HEADER}: {supported[-1]}",
        metadata={"requested": shown or V0_3, "supported": ", ".join(supported)},
    )


def parse_extensions(*values: str | None) -> tuple[str, ...]:
    """The extension URIs of all ``A2A-Extensions`` values given (header lines, metadata), each once, in their order."""
    uris = (uri.strip() for value in values if value for uri in value.split(","))
    return tuple(dict.fromkeys(uri for uri in uris if uri))
