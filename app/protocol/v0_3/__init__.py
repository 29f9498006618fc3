"""A2A 0.3 beside 1.0: requests of 0.3 as requests of 1.0, and 1.0's answers as 0.3's. Pure functions on JSON objects.

Called by ``transports.compat`` and ``transports.compat_rest``. The official SDK's ``a2a.compat.v0_3`` is the oracle of
the tests (docs/decisions/v0-3-adapter.md).
"""
