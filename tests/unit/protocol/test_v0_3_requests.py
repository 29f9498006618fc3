"""Requests of 0.3 that are none: whatever JSON comes, the answer is InvalidParams with the field at fault."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import InvalidParams
from app.operations.registry import BY_NAME
from app.protocol.models import parse
from app.protocol.v0_3.requests import get_task, send_message, set_config
from app.protocol.v0_3.spelling import Json, Spelling
from app.transports.compat import METHODS

_SCALAR = st.none() | st.booleans() | st.integers(-2, 2**40) | st.floats() | st.text(max_size=4)
_NAMES = st.sampled_from(
    [
        *("message", "request", "parts", "content", "role", "kind", "text", "file", "data", "metadata", "value"),
        *("bytes", "uri", "fileWithBytes", "fileWithUri", "mimeType", "name", "data_part_compat"),
        *("configuration", "blocking", "historyLength", "pushNotificationConfig", "pushNotification"),
        *("authentication", "schemes", "config", "id", "url", "taskId", "pushNotificationConfigId"),
    ]
)
_NONSENSE = st.recursive(
    _SCALAR | st.sampled_from(["text", "file", "data", "user", "ROLE_USER"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=16,
)


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=200, deadline=None)
@given(params=st.dictionaries(_NAMES, _NONSENSE, max_size=5), spelling=st.sampled_from(Spelling))
def test_nonsense_is_invalid_params_or_a_request(name: str, params: Json, spelling: Spelling) -> None:
    method = METHODS[name]
    try:
        parse(method.operation.request, method.read(params, spelling))
    except InvalidParams as refused:
        faults = refused.violations
    else:
        faults = None
    assert faults != ()


def _message(**fields: Any) -> Json:
    return {"message": {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "x"}]} | fields}


def _configured(**configuration: Any) -> Json:
    return _message() | {"configuration": configuration}


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "message"),
        ({"message": None}, "message"),
        ({"message": "x"}, "message"),
        (_message(role="owner"), "message.role"),
        (_message(role=["user"]), "message.role"),
        (_message(messageId=""), "message.messageId"),
        (_message(parts=None), "message.parts"),
        (_message(parts=[]), "message.parts"),
        (_message(parts=["x"]), "message.parts[0]"),
        (_message(parts=[{}]), "message.parts[0].kind"),
        (_message(parts=[{"kind": "video"}]), "message.parts[0].kind"),
        (_message(parts=[{"url": "https://example.org"}]), "message.parts[0].kind"),
        (_message(parts=[{"kind": "text"}]), "message.parts[0].text"),
        (_message(parts=[{"kind": "text", "text": 5}]), "message.parts[0].text"),
        (_message(parts=[{"kind": "data", "data": [1]}]), "message.parts[0].data"),
        (_message(parts=[{"kind": "file", "file": "x"}]), "message.parts[0].file"),
        (_message(parts=[{"kind": "file", "file": {}}]), "message.parts[0].file"),
        (_message(parts=[{"kind": "file", "file": {"uri": "u", "bytes": "AA=="}}]), "message.parts[0].file"),
        (_message(parts=[{"kind": "file", "file": {"uri": "u", "name": 1}}]), "message.parts[0].file.name"),
        (_configured(blocking="yes"), "configuration.blocking"),
        (_configured(historyLength=-1), "configuration.historyLength"),
        (_configured(pushNotificationConfig=1), "configuration.pushNotificationConfig"),
        (_configured(pushNotificationConfig={}), "configuration.pushNotificationConfig.url"),
        (
            _configured(pushNotificationConfig={"url": "u", "authentication": {"schemes": []}}),
            "configuration.pushNotificationConfig.authentication.schemes",
        ),
    ],
)
def test_the_field_at_fault_is_named(params: Json, field: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        parse(BY_NAME["SendMessage"].request, send_message(params, Spelling.JSON))
    assert refused.value.violations[0][0] == field


def test_a_config_without_an_object_or_a_task() -> None:
    for params, field in (
        ({"taskId": "t"}, "pushNotificationConfig"),
        ({"taskId": "t", "pushNotificationConfig": []}, "pushNotificationConfig"),
        ({"pushNotificationConfig": {"url": "u"}}, "taskId"),
    ):
        with pytest.raises(InvalidParams) as refused:
            set_config(params, Spelling.JSON)
        assert refused.value.violations[0][0] == field


def test_a_data_part_without_a_kind_is_protojson_on_http_and_json_on_json_rpc() -> None:
    params = _message(parts=[{"data": {"data": {"n": 1}}}])
    read = {spelling: send_message(params, spelling)["message"]["parts"][0]["data"] for spelling in Spelling}
    assert read == {Spelling.JSON: {"data": {"n": 1}}, Spelling.PROTO: {"n": 1}, Spelling.PROTO_TWICE: {"n": 1}}


def test_0_is_no_history_length_and_false_is_none() -> None:
    assert [get_task({"id": "t", "historyLength": length}, Spelling.JSON)["historyLength"] for length in (0, "0")] == [
        None,
        None,
    ]
    with pytest.raises(InvalidParams):
        parse(BY_NAME["GetTask"].request, get_task({"id": "t", "historyLength": False}, Spelling.JSON))
