"""What an agent's card forbids or requires, at every door (A2A v1.0 §3.3.4; issue: capability and extension rules)."""

from typing import Any
from uuid import uuid4

import pytest

from tests.contract.conftest import Agent
from tests.contract.doors import DoorError, Json, say
from tests.contract.test_catalogue import a_card

NO_SUCH_TASK = "00000000-0000-7000-8000-000000000000"


def message(*parts: Json) -> Json:
    return {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": list(parts)}


async def refusal(agent: Agent, operation: str, params: Json, **headers: str) -> DoorError:
    with pytest.raises(DoorError) as refused:
        await agent.door(scope="tasks:read tasks:write push:write").call(operation, params, **headers)
    return refused.value


async def test_streaming_off_is_unsupported_for_both_streaming_operations(agent: Agent) -> None:
    agent.register(card=a_card("silent", capabilities={"streaming": False}))
    for operation, params in (
        ("SendStreamingMessage", {"message": say("x")}),
        ("SubscribeToTask", {"id": NO_SUCH_TASK}),
    ):
        assert (await refusal(agent, operation, params)).reason == "UNSUPPORTED_OPERATION"
    assert (await agent.door().list())["tasks"] == [], "nothing was stored"


async def test_push_off_is_not_supported(agent: Agent) -> None:
    agent.register(card=a_card("no push", capabilities={"pushNotifications": False}))
    config = {"taskId": NO_SUCH_TASK, "url": "https://hooks.example/x"}
    for operation, params in (
        ("CreateTaskPushNotificationConfig", config),
        ("GetTaskPushNotificationConfig", {"taskId": NO_SUCH_TASK, "id": "x"}),
        ("ListTaskPushNotificationConfigs", {"taskId": NO_SUCH_TASK}),
        ("DeleteTaskPushNotificationConfig", {"taskId": NO_SUCH_TASK, "id": "x"}),
        ("SendMessage", {"message": say("x"), "configuration": {"taskPushNotificationConfig": {"url": config["url"]}}}),
    ):
        assert (await refusal(agent, operation, params)).reason == "PUSH_NOTIFICATION_NOT_SUPPORTED", operation
    assert (await agent.door().list())["tasks"] == [], "nothing was stored"


async def test_a_required_extension_must_be_asked_for_and_is_echoed(agent: Agent) -> None:
    needed, other = "https://ext.example/needed", "https://ext.example/other"
    extensions = [{"uri": needed, "required": True}, {"uri": other}]
    agent.register(card=a_card("picky", capabilities={"extensions": extensions}))
    for asked in ({}, {"A2A_Extensions": other}, {"A2A_Extensions": "https://ext.example/neededs"}):
        refused = await refusal(agent, "ListTasks", {}, **asked)
        assert (refused.reason, refused.metadata["extension"]) == ("EXTENSION_SUPPORT_REQUIRED", needed)
    door = agent.door()
    await door.call("ListTasks", {}, A2A_Extensions=f"https://ext.example/unknown, {needed}")
    assert door.last is not None
    assert door.last.headers["a2a-extensions"] == needed
    await door.call("ListTasks", {}, A2A_Extensions=f"{other},{needed}")
    assert sorted(door.last.headers["a2a-extensions"].split(", ")) == [needed, other]


TEXT_ONLY = {"defaultInputModes": ["text/plain"]}
SKILLED: dict[str, Any] = {
    "defaultInputModes": ["Text/Plain; charset=utf-8"],
    "skills": [
        {"id": "s", "name": "s", "description": "s", "tags": [], "inputModes": ["image/*", "application/json"]},
    ],
}


async def test_a_part_of_a_type_that_the_agent_takes(agent: Agent) -> None:
    for card, media_types in (
        (TEXT_ONLY, ["", "text/plain", "TEXT/PLAIN;charset=utf-8"]),
        (SKILLED, ["text/plain", "image/png", "application/json"]),
        ({"defaultInputModes": ["*/*"]}, ["application/x-anything"]),
        ({"defaultInputModes": ["*"]}, ["application/x-anything"]),
        ({"defaultInputModes": ["text"]}, ["text/markdown"]),
        ({"defaultInputModes": []}, ["application/pdf"]),
    ):
        agent.register(card=a_card("typed") | card)
        for media_type in media_types:
            part = {"text": "x"} | ({"mediaType": media_type} if media_type else {})
            task = await agent.door().send(message(part), now=True)
            assert task["history"][0]["parts"] == [part]


async def test_a_part_of_another_type_is_refused_and_named(agent: Agent) -> None:
    html, nonsense = "text/html", "nonsense\r\n\u2028'"
    for card, media_types in (
        (TEXT_ONLY, [html, "application/json", "text", "text/*", "*/*", nonsense]),
        (SKILLED, [html, "imagine/png"]),
    ):
        agent.register(card=a_card("typed") | card)
        for media_type in media_types:
            params = {"message": message({"text": "fine"}, {"text": "x", "mediaType": media_type})}
            for operation in ("SendMessage", "SendStreamingMessage"):
                refused = await refusal(agent, operation, params)
                assert refused.reason == "CONTENT_TYPE_NOT_SUPPORTED"
                assert refused.metadata["field"] == "message.parts[1].mediaType"
                assert "message.parts[1].mediaType" in str(refused)
    assert (await agent.door().list())["tasks"] == [], "nothing was stored"


async def test_accepted_output_modes_are_a_wish(agent: Agent) -> None:
    params = {"acceptedOutputModes": ["image/png"], "returnImmediately": True}
    assert (await agent.door().send(say("x"), configuration=params))["id"]
