"""The official SDK's own conversions between 1.0 and 0.3 are the oracle for ours, both ways and in both spellings.

What it does by accident is evened out: it prints the metadata that a message does not have as ``{}``.
"""

import base64
from typing import Any

import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2, conversions, proto_utils
from a2a.compat.v0_3 import types as v0_3
from a2a.types import a2a_pb2
from google.protobuf.json_format import MessageToDict, ParseDict
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from app.protocol import models
from app.protocol.models import SendMessageRequest, TaskPushNotificationConfig, dump, parse
from app.protocol.v0_3 import requests, results
from app.protocol.v0_3.spelling import ROLES, STATES, Json, Spelling

CASES = settings(max_examples=150, deadline=None)

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
_JSON = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=4,
)
_OBJECT = st.dictionaries(_TEXT, _JSON, min_size=1, max_size=2)
_BASE64 = st.binary(max_size=8).map(lambda raw: base64.b64encode(raw).decode())
_METADATA = {"metadata": _OBJECT}
_NAMED = {"filename": _TEXT, "mediaType": _TEXT}
_STRINGS = st.lists(_TEXT, min_size=1, max_size=2)

PARTS = st.one_of(
    st.fixed_dictionaries({"text": _TEXT | st.just("")}, optional=_METADATA | _NAMED),
    st.fixed_dictionaries({"raw": _BASE64}, optional=_METADATA | _NAMED),
    st.fixed_dictionaries({"url": _TEXT}, optional=_METADATA | _NAMED),
    st.fixed_dictionaries({"data": _JSON}, optional=_METADATA),
)
_SOME_PARTS = st.lists(PARTS, min_size=1, max_size=3)
MESSAGES = st.fixed_dictionaries(
    {"messageId": _TEXT, "role": st.sampled_from(sorted(ROLES)), "parts": _SOME_PARTS},
    optional={"contextId": _TEXT, "taskId": _TEXT, "extensions": _STRINGS, "referenceTaskIds": _STRINGS} | _METADATA,
)
_TIMES = st.integers(1, 999).map(lambda milliseconds: f"2026-01-31T12:00:00.{milliseconds:03}Z")
_STATUSES = st.fixed_dictionaries(
    {"state": st.sampled_from(sorted(STATES))}, optional={"message": MESSAGES, "timestamp": _TIMES}
)
_ARTIFACTS = st.fixed_dictionaries(
    {"artifactId": _TEXT, "parts": _SOME_PARTS},
    optional={"name": _TEXT, "description": _TEXT, "extensions": _STRINGS} | _METADATA,
)
_IDS = {"taskId": _TEXT, "contextId": _TEXT}
ITEMS = st.one_of(
    st.fixed_dictionaries({"message": MESSAGES}),
    st.fixed_dictionaries(
        {
            "task": st.fixed_dictionaries(
                {"id": _TEXT, "contextId": _TEXT, "status": _STATUSES},
                optional={
                    "artifacts": st.lists(_ARTIFACTS, min_size=1, max_size=2),
                    "history": st.lists(MESSAGES, min_size=1, max_size=2),
                }
                | _METADATA,
            )
        }
    ),
    st.fixed_dictionaries({"statusUpdate": st.fixed_dictionaries(_IDS | {"status": _STATUSES}, optional=_METADATA)}),
    st.fixed_dictionaries(
        {
            "artifactUpdate": st.fixed_dictionaries(
                _IDS | {"artifact": _ARTIFACTS},
                optional={"append": st.just(True), "lastChunk": st.just(True)} | _METADATA,
            )
        }
    ),
)
CONFIGS = st.fixed_dictionaries(
    {"taskId": _TEXT, "id": st.uuids().map(str), "url": _TEXT},
    optional={
        "token": _TEXT,
        "authentication": st.fixed_dictionaries({"scheme": _TEXT}, optional={"credentials": _TEXT}),
    },
)
SENDING = st.fixed_dictionaries(
    {"message": MESSAGES},
    optional={
        "configuration": st.fixed_dictionaries(
            {},
            optional={
                "acceptedOutputModes": _STRINGS,
                "historyLength": st.integers(1, 9),
                "returnImmediately": st.just(True),
                "taskPushNotificationConfig": CONFIGS.map(lambda config: _but(config, "taskId")),
            },
        )
    }
    | _METADATA,
)


def _but(holder: Json, *names: str) -> Json:
    return {name: value for name, value in holder.items() if name not in names}


def _even(value: Any) -> Any:
    """Without ``"metadata": {}``."""
    if isinstance(value, list):
        return [_even(item) for item in value]
    if isinstance(value, dict):
        return {name: _even(item) for name, item in value.items() if (name, item) != ("metadata", {})}
    return value


def _printed(model: BaseModel) -> Any:
    return _even(model.model_dump(mode="json", by_alias=True, exclude_none=True))


def _theirs(item: Json) -> Any:
    stream = ParseDict(item, a2a_pb2.StreamResponse())
    return conversions.to_compat_stream_response(stream).result


@CASES
@given(ITEMS)
def test_items_are_what_the_sdk_makes_of_them(item: Json) -> None:
    ours = results.event(item, Spelling.JSON)
    assert _even(ours) == _printed(_theirs(item))
    v0_3.SendStreamingMessageSuccessResponse.model_validate({"id": 1, "jsonrpc": "2.0", "result": ours})


@CASES
@given(ITEMS)
def test_items_in_protojson_are_what_the_sdk_makes_of_them(item: Json) -> None:
    """0.3's protobuf types take them as they are: an unknown field is an error to the clients."""
    ours = ParseDict(results.event(item, Spelling.PROTO_TWICE), a2a_v0_3_pb2.StreamResponse())
    theirs = proto_utils.ToProto.stream_response(_theirs(item))
    assert _even(MessageToDict(ours)) == _even(MessageToDict(theirs))


@CASES
@given(CONFIGS)
def test_configs_are_what_the_sdk_makes_of_them(config: Json) -> None:
    theirs = conversions.to_compat_task_push_notification_config(
        ParseDict(config, a2a_pb2.TaskPushNotificationConfig())
    )
    assert results.config(config, Spelling.JSON) == _printed(theirs)
    ours = ParseDict(results.config(config, Spelling.PROTO), a2a_v0_3_pb2.TaskPushNotificationConfig())
    assert ours == proto_utils.ToProto.task_push_notification_config(theirs)


@CASES
@given(SENDING)
def test_a_sending_is_read_as_the_sdk_reads_it(sending: Json) -> None:
    """From 1.0 by the SDK into 0.3, and back by ours: JSON and ProtoJSON."""
    core = ParseDict(sending, a2a_pb2.SendMessageRequest())
    older = conversions.to_compat_send_message_request(core, 1)
    expected = conversions.to_core_send_message_request(older)

    ours = requests.send_message(_printed(older.params), Spelling.JSON)
    assert _read(ours) == _canonical(expected)

    proto = a2a_v0_3_pb2.SendMessageRequest(
        request=proto_utils.ToProto.message(older.params.message),
        configuration=proto_utils.ToProto.message_send_configuration(older.params.configuration),
        metadata=proto_utils.ToProto.metadata(older.params.metadata),
    )
    ours = requests.send_message(MessageToDict(proto), Spelling.PROTO_TWICE)
    through_proto = v0_3.SendMessageRequest(id=1, params=proto_utils.FromProto.message_send_params(proto))
    assert _read(ours) == _canonical(conversions.to_core_send_message_request(through_proto))


def _read(request: Json) -> Any:
    return _canonical(ParseDict(dump(parse(SendMessageRequest, request)), a2a_pb2.SendMessageRequest()))


def _canonical(request: a2a_pb2.SendMessageRequest) -> Any:
    """An empty configuration and none are one."""
    printed = _even(MessageToDict(request))
    return printed if printed.get("configuration") else _but(printed, "configuration")


@CASES
@given(CONFIGS)
def test_a_config_is_read_as_the_sdk_reads_it(config: Json) -> None:
    core = ParseDict(config, a2a_pb2.TaskPushNotificationConfig())
    older = conversions.to_compat_create_task_push_notification_config_request(core, 1).params
    wrapped = a2a_v0_3_pb2.CreateTaskPushNotificationConfigRequest(
        parent=f"tasks/{older.task_id}",
        config_id=older.push_notification_config.id or "",
        config=proto_utils.ToProto.task_push_notification_config(older),
    )
    bare = MessageToDict(proto_utils.ToProto.task_push_notification_config(older))
    path = {"taskId": config["taskId"]}
    for params, spelling in (
        (_printed(older), Spelling.JSON),
        (MessageToDict(wrapped) | path, Spelling.PROTO),
        (bare | path, Spelling.PROTO),
    ):
        read = dump(parse(TaskPushNotificationConfig, requests.set_config(params, spelling)))
        assert ParseDict(read, a2a_pb2.TaskPushNotificationConfig()) == core


@pytest.mark.parametrize(
    ("model", "ours", "theirs"),
    [
        (
            models.GetTaskRequest,
            requests.get_task({"id": "t", "historyLength": length}, Spelling.JSON),
            conversions.to_core_get_task_request(
                v0_3.GetTaskRequest(id=1, params=v0_3.TaskQueryParams(id="t", history_length=length))
            ),
        )
        for length in (None, 0, 1, 7)
    ]
    + [
        (
            models.CancelTaskRequest,
            requests.task_id({"id": "t", "metadata": {"a": 1}}, Spelling.JSON),
            conversions.to_core_cancel_task_request(
                v0_3.CancelTaskRequest(id=1, params=v0_3.TaskIdParams(id="t", metadata={"a": 1}))
            ),
        ),
        (
            models.GetTaskPushNotificationConfigRequest,
            requests.config_id({"id": "t", "pushNotificationConfigId": "c"}, Spelling.JSON),
            conversions.to_core_get_task_push_notification_config_request(
                v0_3.GetTaskPushNotificationConfigRequest(
                    id=1,
                    params=v0_3.GetTaskPushNotificationConfigParams(id="t", push_notification_config_id="c"),
                )
            ),
        ),
    ],
)
def test_requests_about_a_task_are_read_as_the_sdk_reads_them(model: Any, ours: Json, theirs: Any) -> None:
    assert dump(parse(model, ours)) == MessageToDict(theirs)


@given(_BASE64)
def test_bytes_that_were_encoded_once_are_read_from_a_client_that_encodes_twice(raw: str) -> None:
    """Other programs have the Python SDK's HTTP client too. What is base64 again stays ambiguous, and is unwrapped."""
    twice = base64.b64encode(raw.encode()).decode()
    for sent, spelling in ((twice, Spelling.PROTO_TWICE), (raw, Spelling.PROTO), ("/w==", Spelling.PROTO_TWICE)):
        message = {"messageId": "m", "role": "ROLE_USER", "content": [{"file": {"fileWithBytes": sent}}]}
        (part,) = requests.send_message({"message": message}, spelling)["message"]["parts"]
        assert part["raw"] == (sent if sent == "/w==" else raw)
