"""``/livez``, ``/readyz`` and ``/metrics`` (native-api.md, Operators). Mounted by ``app.main``."""

from collections.abc import Sequence

from starlette.responses import Response

from app import metrics
from app.maintenance.gauges import QueueGauges
from app.maintenance.readiness import Readiness
from app.protocol import strict_json
from app.transports.call_context import Call
from app.transports.endpoints import OPEN, Endpoint

_UNCACHED = {"Cache-Control": "no-store"}


class HealthRoutes:
    """The handlers, bound to this process's readiness and gauges."""

    def __init__(self, readiness: Readiness, gauges: QueueGauges) -> None:
        self._readiness = readiness
        self._gauges = gauges

    def endpoints(self) -> Sequence[Endpoint]:
        return (
            Endpoint("GET", "/livez", OPEN, self.livez, "livez", "Whether the process lives", tags=("operators",)),
            Endpoint("GET", "/readyz", OPEN, self.readyz, "readyz", "Whether it wants requests", tags=("operators",)),
            Endpoint(
                "GET", "/metrics", ("metrics:read",), self.metrics, "metrics", "Prometheus metrics", tags=("operators",)
            ),
        )

    async def livez(self, _call: Call) -> Response:
        """Never touches the database."""
        return Response(b'{"status":"ok"}', headers=_UNCACHED, media_type="application/json")

    async def readyz(self, _call: Call) -> Response:
        """503 with the reasons while a load balancer should send requests elsewhere."""
        reasons = self._readiness.problems()
        body = {"status": "unready" if reasons else "ready", "reasons": reasons}
        return Response(
            strict_json.dumps(body), 503 if reasons else 200, headers=_UNCACHED, media_type="application/json"
        )

    async def metrics(self, call: Call) -> Response:
        """The queues' figures are at most 5 s old; while PostgreSQL is away they stay as they were."""
        await self._gauges.refresh()
        metrics.STREAMS_OPEN.set(call.gateway.streams.open)
        return Response(metrics.render(), media_type=metrics.CONTENT_TYPE)
