"""Which route a request is for, found without trying them all. Called by ``app.main``.

Starlette's router matches a request against every route in turn, which costs more than the rest of a small call once
there are as many as the doors have. Here it is tried only against those with as many segments and the same first one.
"""

from collections import defaultdict

from starlette.routing import Match, Route, Router
from starlette.types import Receive, Scope, Send


class Dispatcher:
    """An ASGI application in front of ``router`` with the same answers; routes may be added at any time.

    What is found at no place goes to ``router``: its parameters that hold slashes, its default, and the lifespan.
    """

    def __init__(self, router: Router) -> None:
        self._router = router
        self._places: dict[tuple[int, str], list[Route]] = {}
        self._indexed = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self._router.routes) != self._indexed:
            self._index()
        if scope["type"] == "http":
            for route in self._places.get(_place(scope["path"]), ()):
                match, found = route.matches(scope)
                if match is Match.FULL:
                    scope.update(found)
                    await route.handle(scope, receive, send)
                    return
        await self._router(scope, receive, send)

    def _index(self) -> None:
        places: defaultdict[tuple[int, str], list[Route]] = defaultdict(list)
        for route in self._router.routes:
            if isinstance(route, Route) and ":path}" not in route.path:
                places[_place(route.path)].append(route)
        self._places, self._indexed = dict(places), len(self._router.routes)


def _place(path: str) -> tuple[int, str]:
    """How many segments, and the first one."""
    return path.count("/"), path[1:].partition("/")[0]
