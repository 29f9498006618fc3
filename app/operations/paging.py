"""Page tokens: where a list goes on, sealed for that list only. Called by every operation that lists."""

from dataclasses import dataclass

from app.auth.handles import Handles
from app.errors import InvalidArgument, WaystationError


@dataclass(frozen=True, slots=True)
class PageTokens:
    """The tokens of one list: of its ``kind``, tenant and filters (``key``, JSON values).

    A token of another list, another tenant or another deployment is answered like garbage (security.md, Tenant
    isolation).
    """

    handles: Handles
    kind: str
    key: list[object]
    error: type[WaystationError] = InvalidArgument

    def after(self, token: str) -> str | None:
        """The position that ``token`` was made for; None for the first page, whose token is "". Raises ``error``."""
        if not token:
            return None
        match self.handles.open(self.kind, token):
            case [found, str(position)] if found == self.key:
                return position
            case _:
                text = "is not one of this list"
                raise self.error(f"pageToken: {text}", violations=[("pageToken", text)])

    def next(self, position: str) -> str:
        """The token of the page after ``position``, the last that was shown."""
        return self.handles.seal(self.kind, [self.key, position])
