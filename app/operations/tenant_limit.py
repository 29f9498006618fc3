"""How much of one thing a tenant may do at a time, per process. Used where a call waits for somebody outside."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from app.errors import TooManyRequests


class TenantLimit:
    """At most ``most`` blocks of each tenant at a time; ``message`` tells the one that comes too many."""

    def __init__(self, most: int, message: str) -> None:
        self._most = most
        self._message = message
        self._under_way: Counter[str] = Counter()

    @contextmanager
    def taken(self, tenant: str) -> Generator[None]:
        """Count one for the length of the block. Raises TooManyRequests."""
        if self._under_way[tenant] >= self._most:
            raise TooManyRequests(self._message, retry_after=1)
        self._under_way[tenant] += 1
        try:
            yield
        finally:
            self._under_way[tenant] -= 1
            if not self._under_way[tenant]:
                del self._under_way[tenant]
