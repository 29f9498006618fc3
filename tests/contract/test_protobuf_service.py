"""The official service and its types against the operation table, oneofs, and bytes: what the walk over the models in
``test_protobuf_oracle.py`` does not see."""

import json
from itertools import combinations
from typing import Any

import pytest
from google.api import annotations_pb2
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from app.errors import InvalidParams
from app.operations.registry import BY_NAME
from app.protocol import strict_json
from app.protocol.models import dump, parse
from app.transports.grpc.codec import Codec
from tests.contract.oracle import MESSAGES, METHODS, MODELS, QUICK, as_proto, minimal, objects, oneofs


def test_the_same_operations() -> None:
    assert set(BY_NAME) == set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_the_same_requests_and_answers(name: str) -> None:
    operation, method = BY_NAME[name], METHODS[name]
    answer = None if method.output_type.full_name == "google.protobuf.Empty" else method.output_type.name
    ours = operation.response.__name__ if operation.response else None
    assert (operation.request.__name__, ours, operation.streaming) == (
        method.input_type.name, answer, method.server_streaming,
    )  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_the_same_paths(name: str) -> None:
    """The proto's google.api.http rules, without the routing key in front, which the door adds to each; subscribing by
    POST is the specification's text (a2a-server.md, Operations)."""
    rule = METHODS[name].GetOptions().Extensions[annotations_pb2.http]
    theirs = {(verb.upper(), path.replace("=*", "")) for one in (rule, *rule.additional_bindings)
              for verb, path in [(one.WhichOneof("pattern"), getattr(one, one.WhichOneof("pattern")))]}  # fmt: skip
    ours = {(route.verb, prefix + route.path) for route in BY_NAME[name].routes for prefix in ("", "/{tenant}")}
    extra = {("POST", f"{prefix}/tasks/{{id}}:subscribe") for prefix in ("", "/{tenant}")}
    assert ours - (extra if name == "SubscribeToTask" else set()) == theirs


ONEOFS = [
    pytest.param(name, oneof, id=f"{name}.{'|'.join(oneof)}") for name in MESSAGES for oneof in oneofs(MESSAGES[name])
]


def _member(name: str, field_name: str) -> tuple[str, Any]:
    field = MESSAGES[name].fields_by_name[field_name]
    if field.message_type is None:
        return field.json_name, "eHh4"
    return field.json_name, minimal(field.message_type) if field.message_type.name in MESSAGES else {"x": 1}


@pytest.mark.parametrize(("name", "oneof"), ONEOFS)
def test_two_of_a_oneof_are_refused_by_both_and_none_by_us(name: str, oneof: tuple[str, ...]) -> None:
    """An empty oneof is valid protobuf, but there is no message in A2A that means anything without its one."""
    for pair in combinations(oneof, 2):
        both = dict(_member(name, field) for field in pair)
        with pytest.raises(json_format.ParseError):
            as_proto(name, both)
        with pytest.raises(InvalidParams):
            parse(MODELS[name], both)
    with pytest.raises(InvalidParams):
        parse(MODELS[name], {})
    for field in oneof:
        one = dict([_member(name, field)])
        assert as_proto(name, dump(parse(MODELS[name], one))) == as_proto(name, one)


@pytest.mark.parametrize("name", MESSAGES)
@QUICK
@given(data=st.data())
def test_what_goes_out_as_text_is_what_the_oracle_reads(name: str, data: st.DataObject) -> None:
    """The whole way of a JSON door: bytes, strict JSON, model, JSON text; ``json_format.Parse`` is the other reader."""
    raw = json.dumps(data.draw(objects(name, plain=False)), ensure_ascii=data.draw(st.booleans()))
    printed = strict_json.dumps(dump(parse(MODELS[name], strict_json.loads(raw.encode()))))
    whole = json_format.Parse(printed, type(as_proto(name, {}))())
    assert whole == json_format.Parse(raw, type(whole)(), ignore_unknown_fields=True)


@pytest.mark.parametrize("name", METHODS)
@QUICK
@given(data=st.data())
def test_the_grpc_door_reads_and_writes_what_the_oracle_does(name: str, data: st.DataObject) -> None:
    """A request's bytes become the same model as its JSON, and an answer's JSON becomes the oracle's bytes."""
    codec, request, answer = Codec(name), METHODS[name].input_type.name, METHODS[name].output_type.name
    asked = data.draw(objects(request, plain=True))
    message = as_proto(request, asked)
    model = parse(MODELS[request], codec.decode(message.SerializeToString()))
    assert as_proto(request, dump(model)) == message
    if answer in MESSAGES:
        answered = dump(parse(MODELS[answer], data.draw(objects(answer, plain=True))))
        assert type(as_proto(answer, {})).FromString(codec.encode(answered)) == as_proto(answer, answered)
