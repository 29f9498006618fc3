"""The older ``/tasks`` REST dialect in A2A's terms and back (legacy-tasks.md): pure, called by ``transports.legacy``.

A submission becomes a user message; a Task is shown with one state per word of the dialect, artifacts that have one
content each, and the dates that A2A's Task does not have, which come from the task's first and last events (``Trail``).
"""

from typing import Any

Json = dict[str, Any]


def legacy_card_fields(card: Json, agent_id: str, base_url: str) -> Json:
    """What clients of the dialect read in ``/.well-known/agent.json``, of a served ``card``.

    ``base_url`` is the agent's, without a trailing slash. These clients call the base URL that they were given;
    ``url`` only tells them. Skills and capabilities keep their other members, which A2A 0.3 clients of the same
    document need.
    """
    capabilities: Json = card.get("capabilities", {})
    skills: list[Json] = card.get("skills", [])
    return {
        "id": agent_id,
        "name": card["name"],
        "description": card["description"],
        "url": base_url,
        "version": card["version"],
        "capabilities": {
            **capabilities,
            "streaming": capabilities.get("streaming", True),
            "pushNotifications": capabilities.get("pushNotifications", False),
            "stateTransitionHistory": True,
        },
        "skills": skills,
        "authentication": {"schemes": ["bearer", "api-key"]},
        "defaultInputModes": card["defaultInputModes"],
        "defaultOutputModes": card["defaultOutputModes"],
    }
