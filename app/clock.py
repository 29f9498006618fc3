"""Process time, injected so that tests can steer it. Expiry never uses it: that is database time (docs/data-path.md)."""

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Returns POSIX seconds. Used for token expiry and for caches."""

system_clock: Clock = time.time
