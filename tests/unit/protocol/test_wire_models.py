"""parse and dump: what is accepted, what is refused and with which words; what the oracle test cannot say."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from app.errors import InvalidArgument, InvalidParams
from app.protocol.models import (
    ABSENT,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Part,
    RegisteredCard,
    SendMessageRequest,
    StreamResponse,
    Task,
    dump,
    format_timestamp,
    parse,
    parse_query,
    parse_timestamp,
)
from app.protocol.states import TaskState


def a_message(**fields: Any) -> dict[str, Any]:
    return {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}], **fields}


def violations_of(model: type[Any], value: object) -> dict[str, str]:
    with pytest.raises(InvalidParams) as refused:
        parse(model, value)
    return dict(refused.value.violations)


# --- parts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [None, 0, "", False, [], {}, [None], {"a": None}, 1.5])
def test_data_may_be_any_json_value(data: object) -> None:
    assert dump(parse(Part, {"data": data})) == {"data": data}


def test_nulls_beside_content_are_absent() -> None:
    part = parse(Part, {"text": "hi", "raw": None, "url": None, "data": None, "metadata": None, "filename": None})
    assert part.data is ABSENT
    assert dump(part) == {"text": "hi"}


def test_empty_text_is_content() -> None:
    assert dump(parse(Part, {"text": ""})) == {"text": ""}


@pytest.mark.parametrize(
    "part",
    [{}, {"text": None}, {"filename": "a"}, {"text": "a", "url": "b"}, {"text": "a", "data": 0}, {"kind": "text"}],
)
def test_a_part_has_exactly_one_content(part: dict[str, Any]) -> None:
    refused = violations_of(Message, a_message(parts=[{"text": "fine"}, part]))
    assert refused == {"parts[1]": "must have exactly one of text, raw, url, data"}


@pytest.mark.parametrize("raw", ["+/+/", "-_-_", "+_-/"])
def test_base64_is_read_in_both_alphabets_and_kept_in_the_standard_one(raw: str) -> None:
    assert dump(parse(Part, {"raw": raw})) == {"raw": "+/+/"}


@pytest.mark.parametrize(("raw", "kept"), [("YQ", "YQ=="), ("YQ==", "YQ=="), ("YR", "YQ=="), ("", "")])
def test_base64_padding_is_optional_on_input(raw: str, kept: str) -> None:
    assert dump(parse(Part, {"raw": raw})) == {"raw": kept}


@pytest.mark.parametrize("raw", ["a", "a b", "é", "YQ==YQ==", "a\n"])
def test_what_is_not_base64_is_refused(raw: str) -> None:
    assert violations_of(Part, {"raw": raw}) == {"raw": "must be base64 (standard or URL-safe)"}


# --- names, unknown fields, paths ------------------------------------------------------------------------------------


def test_snake_case_is_accepted_and_unknown_fields_are_forgotten() -> None:
    value = {
        "message": {
            "message_id": "m1",
            "role": 1,
            "parts": [{"text": "a", "media_type": "text/plain", "x": 1}],
            "y": 2,
        },
        "configuration": {"return_immediately": True, "history_length": "3", "blocking": False},
        "z": {},
    }
    assert dump(parse(SendMessageRequest, value)) == {
        "message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "a", "mediaType": "text/plain"}]},
        "configuration": {"historyLength": 3, "returnImmediately": True},
    }


def test_violations_name_fields_in_camel_case_whatever_the_input_said() -> None:
    value = {"message": a_message(message_id=7, messageId=None, context_id=1), "configuration": {"history_length": "x"}}
    assert violations_of(SendMessageRequest, value) == {
        "message.messageId": "is required",
        "message.contextId": "must be a string",
        "configuration.historyLength": "must be an integer",
    }


def test_keys_of_maps_stay_as_they_are_in_paths() -> None:
    card = {
        "name": "n",
        "description": "d",
        "version": "1",
        "capabilities": {},
        "default_input_modes": [],
        "default_output_modes": [],
        "skills": [],
        "security_schemes": {"my_scheme": {"oauth2_security_scheme": {"flows": {"implicit": {"scopes": {"a_b": 1}}}}}},
        "security_requirements": [{"schemes": {"my_scheme": {"list": [1]}}}],
    }
    assert violations_of(RegisteredCard, card) == {
        "securitySchemes.my_scheme.oauth2SecurityScheme.flows.implicit.scopes.a_b": "must be a string",
        "securityRequirements[0].schemes.my_scheme.list[0]": "must be a string",
    }


def test_the_message_of_the_error_is_its_first_violation() -> None:
    with pytest.raises(InvalidParams, match=r"^message\.parts: must have at least 1 element$"):
        parse(SendMessageRequest, {"message": a_message(parts=[])})


def test_another_error_and_a_path_prefix_can_be_asked_for() -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse(GetTaskRequest, {"id": ""}, at="events[3]", error=InvalidArgument)
    assert refused.value.violations == (("events[3].id", "must not be empty"),)


@pytest.mark.parametrize("value", ["x", 5, None, [], [{}], True])
def test_a_request_is_an_object(value: object) -> None:
    refused = violations_of(SendMessageRequest, value)
    assert list(refused) == [""]


def test_the_number_of_violations_is_bounded() -> None:
    assert len(violations_of(Message, a_message(parts=[{}] * 200))) == 20


# --- limits (security.md) --------------------------------------------------------------------------------------------


def test_at_most_256_parts() -> None:
    assert parse(Message, a_message(parts=[{"text": "a"}] * 256))
    refused = violations_of(Message, a_message(parts=[{"text": "a"}] * 257))
    assert refused == {"parts": "must have at most 256 elements, has 257"}


def test_metadata_has_at_most_64_kib() -> None:
    frame = len('{"k":""}')
    assert parse(Message, a_message(metadata={"k": "x" * (65536 - frame)}))
    refused = violations_of(Message, a_message(metadata={"k": "é" * 32765}))
    assert refused == {"metadata": f"must have at most 65536 bytes, has {32765 * 2 + frame}"}


@pytest.mark.parametrize("field", ["messageId", "contextId", "taskId"])
def test_ids_have_at_most_256_characters(field: str) -> None:
    assert parse(Message, a_message(**{field: "é" * 256}))
    assert violations_of(Message, a_message(**{field: "x" * 257})) == {field: "must have at most 256 characters"}


def test_referenced_ids_are_ids() -> None:
    refused = violations_of(Message, a_message(referenceTaskIds=["a", "", "x" * 257]))
    assert refused == {
        "referenceTaskIds[1]": "must not be empty",
        "referenceTaskIds[2]": "must have at most 256 characters",
    }


# --- numbers, flags, enums, times ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "read"), [(0, 0), ("0", 0), (2.0, 2), ("2.0", 2), ("1e2", 100), (None, None)])
def test_integers_are_read_as_protojson_has_them(value: object, read: int | None) -> None:
    assert parse(GetTaskRequest, {"id": "t", "historyLength": value}).history_length == read


@pytest.mark.parametrize(
    "value",
    [-1, "-1", 1.5, "1.5", True, "", " 1", "1_0", "x", [], {}, 2**31, "9" * 400, 1e300, "1e99", "٣", "Infinity"],
)
def test_what_is_no_history_length_is_refused(value: object) -> None:
    assert list(violations_of(GetTaskRequest, {"id": "t", "historyLength": value})) == ["historyLength"]


@pytest.mark.parametrize("value", ["true", 1, 0, "", "yes", []])
def test_flags_are_json_booleans(value: object) -> None:
    assert violations_of(ListTasksRequest, {"includeArtifacts": value}) == {"includeArtifacts": "must be true or false"}


@pytest.mark.parametrize("size", [0, 101, -1, "0"])
def test_page_size_is_1_to_100(size: object) -> None:
    assert list(violations_of(ListTasksRequest, {"pageSize": size})) == ["pageSize"]


@pytest.mark.parametrize("status", [None, 0, "TASK_STATE_UNSPECIFIED"])
def test_an_unspecified_status_filter_is_none(status: object) -> None:
    assert parse(ListTasksRequest, {"status": status}).status is TaskState.UNSPECIFIED


@pytest.mark.parametrize("status", ["bogus", "WORKING", "completed", 9, -1, True, 1.5, {}])
def test_an_unknown_state_is_refused_with_the_known_ones(status: object) -> None:
    refused = violations_of(ListTasksRequest, {"status": status})
    assert refused["status"].startswith("must be one of TASK_STATE_UNSPECIFIED, TASK_STATE_SUBMITTED, ")


def test_times_are_printed_in_utc_with_milliseconds() -> None:
    task = {"id": "t", "status": {"state": 2, "timestamp": "2026-01-01T01:00:00.123999999+02:00"}}
    assert dump(parse(Task, task)) == {
        "id": "t",
        "status": {"state": "TASK_STATE_WORKING", "timestamp": "2025-12-31T23:00:00.123Z"},
    }


def test_times_keep_their_microseconds_inside() -> None:
    read = parse_timestamp("2026-01-01T00:00:00.123456789Z")
    assert read == datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
    assert parse_timestamp(read.astimezone(timezone(timedelta(hours=5)))) == read
    assert format_timestamp(read.replace(microsecond=0)) == "2026-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    "value",
    [
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-01-01T00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "now",
        "2026-W01-1T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "2026-01-01T00:00:00+24:00",
        "2026-01-01 00:00:00Z",
        "2026-01-01T00:00:00,5Z",
        "",
        5,
        [],
        datetime(2026, 1, 1),
    ],
)
def test_other_times_are_refused(value: object) -> None:
    assert list(violations_of(ListTasksRequest, {"statusTimestampAfter": value})) == ["statusTimestampAfter"]


# --- oneofs, defaults, queries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [{}, {"task": None}, {"x": 1}])
def test_a_stream_response_holds_one_thing(value: dict[str, Any]) -> None:
    text = "must have exactly one of task, message, statusUpdate, artifactUpdate"
    assert violations_of(StreamResponse, value) == {"": text}
    assert violations_of(StreamResponse, {"message": a_message(), "task": {"id": "t", "status": {"state": 1}}}) == {
        "": text
    }


def test_the_forced_defaults_of_a_list() -> None:
    assert dump(parse(ListTasksResponse, {})) == {"tasks": [], "nextPageToken": "", "pageSize": 0, "totalSize": 0}


def test_a_query_is_read_from_text() -> None:
    read = parse_query(
        ListTasksRequest,
        {"status": "TASK_STATE_WORKING", "pageSize": "10", "includeArtifacts": "false", "unknown": "x"},
    )
    assert (read.status, read.page_size, read.include_artifacts) == (TaskState.WORKING, 10, False)


@pytest.mark.parametrize("text", ["True", "1", "", "yes"])
def test_a_flag_in_a_query_is_true_or_false(text: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        parse_query(ListTasksRequest, {"includeArtifacts": text})
    assert refused.value.violations == (("includeArtifacts", "must be true or false"),)
