"""Calling a webhook: where it may lead, how it is signed (Standard Webhooks 1.0), what its answer means.

An address that a tenant typed must not reach what only the worker can reach: names are resolved here, every address
must be public (or in WEBHOOK_NETWORKS), and the connection goes to the address that was checked. Redirects are not
followed, proxies of the environment are not used, the answer's body is not read.
Called by `tenants.services.webhooks` (may it be registered?) and `tenants.services.delivery`.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

import httpx

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

SECRET_PREFIX = "whsec_"  # noqa: S105  the standard's prefix
SECRET_BYTES = 32
# All of one call, from the look-up of the name to the answer's status line.
CALL_SECONDS = 10.0
# Shared address space, 6to4's relay anycast and NAT64 prefixes lead into networks that are not the public one.
NOT_PUBLIC = tuple(
    ip_network(n) for n in ("100.64.0.0/10", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16")
)


class AddressError(ValueError):
    """The address may not be called; says why, for the person who typed it."""


@dataclass(frozen=True, slots=True)
class Target:
    """A checked address: what is connected to, and what the receiver is told it is called."""

    scheme: str
    host: str
    port: int
    path: str
    address: Address

    @property
    def url(self) -> str:
        """The address itself in the URL, so that the name is not looked up again."""
        shown = f"[{self.address}]" if self.address.version == 6 else str(self.address)
        return f"{self.scheme}://{shown}:{self.port}{self.path}"

    @property
    def host_header(self) -> str:
        """The name, with a port that is not the scheme's own."""
        own = {"http": 80, "https": 443}[self.scheme]
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == own else f"{name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Answer:
    """How a call ended. error: empty when it was taken. gone: never call again. retry_after_seconds: as asked."""

    error: str = ""
    gone: bool = False
    retry_after_seconds: float = 0.0


def new_secret() -> str:
    """A signing secret in the standard's form."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """`webhook-signature`: v1, HMAC-SHA256 over "id.timestamp.body", base64."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def allowed_networks(listed: Sequence[str]) -> tuple[Network, ...]:
    """WEBHOOK_NETWORKS, read. Raises ValueError for what is no network."""
    return tuple(ip_network(each) for each in listed)


def check_url(url: str, allowed: Sequence[Network]) -> None:
    """Refuse what can be refused without looking the name up. Raises AddressError."""
    parts = _parts(url)
    try:
        literal = ip_address(parts.hostname or "")
    except ValueError:
        literal = None
    if literal is not None:
        _check_address(literal, allowed)
    if parts.scheme == "http" and not allowed:
        raise AddressError("must begin with https://")


async def resolve(url: str, allowed: Sequence[Network]) -> Target:
    """Look the name up and check every address. Raises AddressError, OSError where the name is unknown."""
    parts = _parts(url)
    host, scheme = parts.hostname or "", parts.scheme
    port = parts.port or (443 if scheme == "https" else 80)
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [ip_address(str(entry[4][0]).split("%")[0]) for entry in found]
    for address in addresses:
        _check_address(address, allowed)
    address = addresses[0]
    if scheme == "http" and not _is_in(address, allowed):
        raise AddressError("must begin with https://")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(scheme, host, port, path, address)


def caller() -> httpx.AsyncClient:
    """One for a round of calls. It keeps no connection: the next name at the same address proves itself anew."""
    return httpx.AsyncClient(
        trust_env=False,
        follow_redirects=False,
        timeout=CALL_SECONDS,
        limits=httpx.Limits(max_keepalive_connections=0),
    )


async def call(
    client: httpx.AsyncClient,
    url: str,
    headers: dict[str, str],
    body: bytes,
    allowed: Sequence[Network],
) -> Answer:
    """POST once, within CALL_SECONDS in all. Never raises for what the other side does."""
    try:
        async with asyncio.timeout(CALL_SECONDS):
            return await _post(client, await resolve(url, allowed), headers, body)
    except TimeoutError:
        return Answer(f"no answer within {CALL_SECONDS:.0f} s")
    except AddressError as error:
        return Answer(f"the address {error}")
    except socket.gaierror:
        return Answer("the name is unknown")
    except (httpx.HTTPError, OSError, UnicodeError) as error:
        return Answer(f"the connection failed: {type(error).__name__}")


async def _post(
    client: httpx.AsyncClient, target: Target, headers: dict[str, str], body: bytes
) -> Answer:
    async with client.stream(
        "POST",
        target.url,
        content=body,
        headers=headers | {"Host": target.host_header},
        extensions={"sni_hostname": target.host},  # certificates are checked against the name
    ) as response:
        if response.is_success:
            return Answer()
        return Answer(
            f"HTTP {response.status_code}",
            gone=response.status_code == httpx.codes.GONE,
            retry_after_seconds=_retry_after(response.headers.get("Retry-After", "")),
        )


def _retry_after(sent: str) -> float:
    """Seconds, 0 for a date or nonsense."""
    return float(sent) if sent.isascii() and sent.isdecimal() and len(sent) < 7 else 0.0


def _parts(url: str) -> "SplitUrl":
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise AddressError("is not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise AddressError("must begin with https:// and name a host")
    if parts.username or parts.password or parts.fragment:
        raise AddressError("must have no user, password or fragment")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise AddressError("must be plain ASCII without spaces")
    return SplitUrl(parts.scheme, parts.hostname, port, parts.path, parts.query)


@dataclass(frozen=True, slots=True)
class SplitUrl:
    """The parts of a URL that are used."""

    scheme: str
    hostname: str
    port: int | None
    path: str
    query: str


def _check_address(address: Address, allowed: Sequence[Network]) -> None:
    """Raise AddressError unless the address is public, or allowed."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    if mapped is not None:
        return _check_address(mapped, allowed)
    if _is_in(address, allowed):
        return None
    special = address.is_multicast or address.is_unspecified or address.is_reserved
    if special or not address.is_global or _is_in(address, NOT_PUBLIC):
        raise AddressError("leads into a network that is not public")
    return None


def _is_in(address: Address, networks: Sequence[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)
