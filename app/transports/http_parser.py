"""llhttp's request parser for a server that switches to no other protocol. Used by ``transports.http_protocol``.

RFC 9110 §7.8: a server may ignore Upgrade, and the request is an ordinary one then. httptools instead takes it to end
with its head: a body would be lost, or its bytes be read as the next request. Java's HttpClient asks for h2c with its
first request, whatever that is.
"""

from typing import Any

import httptools


class PlainParser:
    """Stands in for ``httptools.HttpRequestParser``; ``protocol`` is uvicorn's, which has ``url`` and ``headers``.

    The head of a request that asks for an upgrade is parsed twice, the second time without its Upgrade header; during
    the first ``is_asking`` is true, and the protocol passes over what it is called with.
    """

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._parser = self._fresh()

    @property
    def is_asking(self) -> bool:
        return self._parser.should_upgrade()

    def should_upgrade(self) -> bool:
        return False

    def should_keep_alive(self) -> bool:
        return self._parser.should_keep_alive()

    def get_http_version(self) -> str:
        return self._parser.get_http_version()

    def get_method(self) -> bytes:
        return self._parser.get_method()

    def feed_data(self, data: bytes) -> None:
        """Raises httptools.HttpParserError for what is not HTTP, CONNECT included."""
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if self.get_method() == b"CONNECT":
                    raise httptools.HttpParserError("CONNECT") from None
                data = self._head() + data[upgrade.args[0] :]
                self._parser = self._fresh()

    def _fresh(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self._protocol)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        return parser

    def _head(self) -> bytes:
        lines = [b"%s %s HTTP/%s" % (self.get_method(), self._protocol.url, self.get_http_version().encode())]
        lines += [b"%s: %s" % header for header in self._protocol.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])
