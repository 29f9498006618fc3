"""Standard Webhooks signatures, by the specification's own vector and by a receiver written out by hand."""

import base64
import hashlib
import hmac

from app.webhooks import signing

KEY = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
OTHER = b"o" * 32


def is_signed(headers: dict[str, str], body: bytes, key: bytes) -> bool:
    """What a receiver does: any of the v1 signatures over id.timestamp.body is enough."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(given, expected) for given in headers["webhook-signature"].split(" "))


def test_the_vector_of_the_specifications_libraries() -> None:
    headers = signing.headers([KEY], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_two_keys_two_signatures_while_one_replaces_the_other() -> None:
    body = '{"text": "ü"}'.encode()
    headers = signing.headers([OTHER, KEY], "task:1:config", 1, body)
    assert len(headers["webhook-signature"].split(" ")) == 2
    assert is_signed(headers, body, KEY)
    assert is_signed(headers, body, OTHER)
    assert not is_signed(headers, body, b"x" * 32)


def test_id_time_and_body_are_signed() -> None:
    headers = signing.headers([KEY], "task:1:config", 1, b"{}")
    assert is_signed(headers, b"{}", KEY)
    assert not is_signed(headers, b"{} ", KEY)
    assert not is_signed(headers | {"webhook-id": "task:2:config"}, b"{}", KEY)
    assert not is_signed(headers | {"webhook-timestamp": "2"}, b"{}", KEY)
