"""Push notification configs (A2A v1.0 §3.1.7 to §3.1.10): the capability is not offered yet, and the card says so."""

from typing import Never

from app.auth.caller import CallContext
from app.errors import PushNotificationNotSupported
from app.operations.agent_doors import AgentDoor
from app.operations.deps import Operations


async def not_supported(_ops: Operations, _ctx: CallContext, _door: AgentDoor, _request: object) -> Never:
    """Raises PushNotificationNotSupported."""
    raise PushNotificationNotSupported
