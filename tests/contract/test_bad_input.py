"""Every row of security.md's Input limits, at the doors: the right 4xx, nothing stored, and never a 5xx."""

import base64
import gzip
import json
import random
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.contract.conftest import Agent
from tests.contract.doors import Door, Json, say

BROKER_ENVIRONMENT = {"WAYSTATION_MAX_BODY_BYTES": "65536", "WAYSTATION_BLOCKING_WAIT_SECONDS": "0"}
LIMIT = 65536
JSON_TYPE = {"Content-Type": "application/json"}


def envelope(door: Door, message: Json) -> bytes:
    """A SendMessage request as the door's body."""
    params = {"message": message, "configuration": {"returnImmediately": True}}
    whole = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params} if door.name == "jsonrpc" else params
    return json.dumps(whole, ensure_ascii=False).encode()


async def post(door: Door, content: bytes | AsyncIterator[bytes], **headers: str) -> tuple[int, str]:
    """HTTP status and reason of a raw SendMessage body."""
    path = f"{door.base}/rpc" if door.name == "jsonrpc" else f"{door.base}/a2a/message:send"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await door.http.post(path, content=content, headers=JSON_TYPE | named)
    error = answer.json().get("error")
    if error is None:
        return answer.status_code, "OK"
    return answer.status_code, (error.get("details") or error["data"])[0]["reason"]


async def stored(agent: Agent) -> int:
    return (await agent.door().list())["totalSize"]


def status(door: Door, reason: str) -> int:
    """JSON-RPC errors of the protocol itself are 200."""
    at_http_level = {"PAYLOAD_TOO_LARGE": 413, "UNSUPPORTED_MEDIA_TYPE": 415, "HEADERS_TOO_LARGE": 431}
    return at_http_level.get(reason, 200 if door.name == "jsonrpc" else 400)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"go", b"\x00"),
        (b"go", b"\\u0000"),
        (b"go", b"\\ud800"),
        (b"go", b"\xff"),
        (b'"go"', b"NaN"),
        (b'"go"', b"-Infinity"),
        (b'"go"', b"1e999"),
        (b'"go"', str(2**63).encode()),
        (b'"go"', b"9" * 5000),
        (b'"text":', b'"text": "twice", "text":'),
        (b'"go"', b"[" * 65 + b"]" * 65),
        (b"}", b""),
        (b"{", b"\xef\xbb\xbf{"),
    ],
)
async def test_json_that_is_refused(agent: Agent, old: bytes, new: bytes) -> None:
    door = agent.door()
    assert await post(door, envelope(door, say("go")).replace(old, new, 1)) == (
        status(door, "PARSE_ERROR"),
        "PARSE_ERROR",
    )
    assert await stored(agent) == 0


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig"])
async def test_utf_8_only(agent: Agent, encoding: str) -> None:
    door = agent.door()
    content = envelope(door, say("go")).decode().encode(encoding)
    assert (await post(door, content))[1] == "PARSE_ERROR"
    declared = {"Content-Type": f"application/json; charset={encoding}"}
    if encoding != "utf-8-sig":
        assert (await post(door, content, **declared))[1] == "CONTENT_TYPE_NOT_SUPPORTED"


async def test_a_body_over_the_limit_is_413_whether_declared_or_counted(agent: Agent) -> None:
    door = agent.door()
    just = envelope(door, say("go"))
    just = just.replace(b"go", b"g" * (LIMIT - len(just) + 2))
    assert len(just) == LIMIT
    assert (await post(door, just))[1] == "OK"
    declared = await post(door, just.replace(b"gg", b"ggg", 1).replace(b"ggg", b"gggg", 1))
    assert declared == (413, "PAYLOAD_TOO_LARGE")

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(9):
            yield b" " * 8192

    assert await post(door, chunks()) == (413, "PAYLOAD_TOO_LARGE")
    assert await stored(agent) == 1


async def test_a2a_python_473_a_large_raw_part_is_413_and_not_500(agent: Agent) -> None:
    door = agent.door()
    message = say("go") | {"parts": [{"raw": base64.b64encode(b"x" * LIMIT).decode(), "mediaType": "image/png"}]}
    assert await post(door, envelope(door, message)) == (413, "PAYLOAD_TOO_LARGE")


async def test_content_encoding_is_415(agent: Agent) -> None:
    door = agent.door()
    content = envelope(door, say("go"))
    assert await post(door, gzip.compress(content), Content_Encoding="gzip") == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert (await post(door, content, Content_Encoding="identity"))[1] == "OK"


async def test_headers_over_the_limits_are_431(agent: Agent) -> None:
    door = agent.door()
    content = envelope(door, say("go"))
    many = {f"X-{number}": "x" for number in range(110)}
    for headers in ({"X-Large": "x" * 17000}, many):
        assert await post(door, content, **headers) == (431, "HEADERS_TOO_LARGE")
    assert await stored(agent) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"parts": [{"text": "x"}] * 257},
        {"metadata": {"x": "y" * 64 * 1024}},
        {"messageId": "m" * 257},
        {"contextId": "c" * 257},
        {"referenceTaskIds": ["t" * 257]},
        {"parts": [{"text": "x", "url": "https://example.org"}]},
        {"parts": [{"raw": "not base64!"}]},
        {"parts": "text"},
        {"role": "ROLE_KING"},
        {"role": 7},
        {"metadata": []},
        {"extensions": [1]},
    ],
)
async def test_messages_over_the_limits_are_invalid(agent: Agent, change: Json) -> None:
    door = agent.door()
    code, reason = await post(door, envelope(door, say("go") | change))
    assert (code, reason) in ((status(door, "INVALID_PARAMS"), "INVALID_PARAMS"), (413, "PAYLOAD_TOO_LARGE"))
    assert await stored(agent) == 0


async def test_what_the_ledger_stores_comes_back_as_it_was(agent: Agent) -> None:
    """Whatever is accepted survives the round trip through PostgreSQL text."""
    odd = 'quote " backslash \\ tab \t nul-escape \\u0000 sep \u2028\u2029\x85 emoji \U0001f600 del \x7f'
    message = say(odd, contextId='c "\\ \u2028', metadata={odd: [1.5, -0.0, 2**53, None, True, {"": []}]})
    message["parts"].append({"data": {"deep": [[[[odd]]]]}, "filename": odd})
    door = agent.door()
    task = await door.send(message, now=True)
    assert task["history"][0] == message | {"taskId": task["id"]}
    assert (await door.get(task["id"]))["history"][0] == message | {"taskId": task["id"]}


async def test_no_input_gives_a_5xx(agent: Agent) -> None:
    door = agent.door()
    good = envelope(door, say("go", contextId="c", metadata={"a": 1}))
    path = f"{door.base}/rpc" if door.name == "jsonrpc" else f"{door.base}/a2a/message:send"
    source = random.Random(4711)
    for _ in range(250):
        content = bytearray(good)
        for _ in range(source.randrange(1, 4)):
            at = source.randrange(len(content))
            match source.randrange(3):
                case 0:
                    content[at] = source.randrange(256)
                case 1:
                    del content[at : at + source.randrange(1, 20)]
                case _:
                    content[at:at] = source.choice([b"null", b"{}", b"[]", b'"', b"1e5", b"\\u0000", b"true", b"-1"])
        answer = await door.http.post(path, content=bytes(content), headers=JSON_TYPE)
        assert answer.status_code < 500, (bytes(content), answer.text)


@pytest.mark.parametrize(
    "segment", ["%00", "%FF", "..", "%2e%2e", "%2F", "a" * 5000, "%E2%80%A8", "'; DROP TABLE tasks"]
)
async def test_odd_paths_are_not_found(agent: Agent, segment: str) -> None:
    door = agent.door(name="rest")
    for path in (f"{door.base}/a2a/tasks/{segment}", f"/v1/tasks/{segment}", f"/agents/{segment}/a2a/tasks"):
        answer = await door.http.get(httpx.URL(path))
        assert answer.status_code in (400, 404, 405, 431), (path, answer.status_code)
