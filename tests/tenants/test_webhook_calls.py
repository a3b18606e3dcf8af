"""Where a webhook may lead, and how it is signed."""

import asyncio
import base64
import hashlib
import hmac
import socket
from typing import Any

import pytest

from tenants import webhook_calls
from tenants.webhook_calls import AddressError, allowed_networks, check_url, resolve, signature

REFUSED_AS_TYPED = [
    "http://hooks.example/x",
    "ftp://hooks.example/x",
    "https://",
    "https:///path",
    "//hooks.example/x",
    "https://user@hooks.example/",
    "https://user:password@hooks.example/",
    "https://hooks.example/#part",
    "https://hooks.example:99999/",
    "https://hooks.example/a b",
    "https://hööks.example/",
    "https://hooks.example/\r\nX: y",
    "https://127.0.0.1/",
    "https://[::1]/",
    "https://10.1.2.3/",
    "https://172.16.0.1/",
    "https://192.168.1.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://100.64.0.1/",
    "https://0.0.0.0/",
    "https://224.0.0.1/",
    "https://255.255.255.255/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:10.0.0.1]/",
    "https://[fe80::1]/",
    "https://[fd00::1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[2002:7f00:1::]/",
    "https://[::]/",
]
# What name servers may answer for a name that looks harmless.
REFUSED_AS_RESOLVED = [
    "127.0.0.1",
    "10.0.0.1",
    "169.254.169.254",
    "100.64.0.9",
    "::1",
    "fd00::1",
    "::ffff:10.0.0.1",
]


@pytest.mark.parametrize("url", REFUSED_AS_TYPED)
def test_an_address_inside_or_malformed_is_refused_when_it_is_typed(url: str) -> None:
    with pytest.raises(AddressError):
        check_url(url, ())


@pytest.mark.parametrize(
    "url", ["https://hooks.example/x?y=1", "https://1.1.1.1:8443/", "https://[2606:4700::1111]/"]
)
def test_a_public_address_is_taken(url: str) -> None:
    check_url(url, ())


def resolved_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    async def getaddrinfo(_loop: Any, host: str, port: int, **_how: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port)) for a in addresses]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)


@pytest.mark.parametrize("address", REFUSED_AS_RESOLVED)
async def test_a_name_that_leads_inside_is_refused_when_it_is_called(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    resolved_to(monkeypatch, "93.184.216.34", address)
    with pytest.raises(AddressError, match="not public"):
        await resolve("https://hooks.example/x", ())
    async with webhook_calls.caller() as client:
        answer = await webhook_calls.call(client, "https://hooks.example/x", {}, b"{}", ())
    assert "not public" in answer.error


async def test_the_connection_goes_to_the_address_that_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolved_to(monkeypatch, "93.184.216.34")
    target = await resolve("https://hooks.example:8443/x?y=1", ())
    assert target.url == "https://93.184.216.34:8443/x?y=1"
    assert target.host_header == "hooks.example:8443"
    assert (await resolve("https://hooks.example/", ())).host_header == "hooks.example"


async def test_allowed_networks_are_called_also_without_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allowed = allowed_networks(["10.0.0.0/8"])
    check_url("http://10.1.2.3/x", allowed)
    resolved_to(monkeypatch, "10.1.2.3")
    assert (await resolve("http://alerts.internal/x", allowed)).url == "http://10.1.2.3:80/x"
    resolved_to(monkeypatch, "192.168.0.1")
    with pytest.raises(AddressError):
        await resolve("http://alerts.internal/x", allowed)
    resolved_to(monkeypatch, "93.184.216.34")
    with pytest.raises(AddressError, match="https"):
        await resolve("http://hooks.example/x", allowed)


def test_signatures_are_those_of_the_standard() -> None:
    """The example of the Standard Webhooks specification's own libraries."""
    signed = signature(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_new_secret_signs() -> None:
    secret = webhook_calls.new_secret()
    key = base64.b64decode(secret.removeprefix("whsec_"))
    assert len(key) == 32
    expected = hmac.new(key, b"msg_1.5.{}", hashlib.sha256).digest()
    assert signature(secret, "msg_1", 5, b"{}") == "v1," + base64.b64encode(expected).decode()
