"""Whether this process should get requests: the answer of ``/readyz``, which itself never waits for anything."""

from collections.abc import Awaitable, Callable

from app.loops import Loop, LoopConfig
from app.maintenance.pulse import Pulse


class Readiness(Loop):
    """``missing_keys`` names the issuers whose keys have never been had, and tries to get them."""

    def __init__(self, pulse: Pulse, missing_keys: Callable[[], Awaitable[list[str]]], interval: float = 1.0) -> None:
        super().__init__("readiness", LoopConfig(interval))
        self._pulse = pulse
        self._missing_keys = missing_keys
        self._missing: list[str] | None = None
        self._draining = False

    async def run_once(self) -> bool:
        if self._missing != []:
            self._missing = await self._missing_keys()
        return False

    def drain(self) -> None:
        """From now on not ready."""
        self._draining = True

    def problems(self) -> list[str]:
        """The reasons for not being ready; none when ready."""
        reasons = ["draining"] if self._draining else []
        reasons += self._pulse.problems()
        if self._missing is None:
            reasons.append("the keys of the token issuers have not been asked for yet")
        elif self._missing:
            reasons.append(f"no keys yet from {', '.join(self._missing)}")
        return reasons
