"""Process time, injected so that tests can steer it. Leases never use it: they live by the database's clock."""

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Returns POSIX seconds. Used for token expiry and for caches."""

system_clock: Clock = time.time
