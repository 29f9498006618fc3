"""Clients of brokers on this machine speak plain HTTP. Called by the tests' clients."""

import ssl

NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""``verify`` for httpx: it would otherwise read all certificates anew for each client, 50 ms of processor time."""
