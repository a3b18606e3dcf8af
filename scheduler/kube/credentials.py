"""Where the API server is and how we prove who we are; used by `connection` alone.

The official client reads kubeconfigs, exec plugins and the in-cluster service account, and renews
tokens; everything else about it is left alone.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes import client, config

# An exec plugin may run a program for every token; in-cluster tokens are re-read each minute.
TOKEN_KEPT_SECONDS = 30.0
DEFAULT_KUBECONFIG = Path("~/.kube/config")


class CredentialsError(Exception):
    """Neither a usable kubeconfig nor a service account was found."""


@dataclass
class Credentials:
    """Base URL, TLS settings and the current `Authorization` header of one cluster."""

    base_url: str
    ssl_context: ssl.SSLContext | None
    server_hostname: str | None = None
    _configuration: Any = None
    _token: str | None = None
    _token_read_at: float = field(default=float("-inf"))

    async def authorization(self, *, renew: bool = False) -> str | None:
        """The header's value, or None where a client certificate (or nothing) is used.

        Renewal can block (a file, or a plugin's process), so it happens off the event loop.
        """
        if self._configuration is None:
            return None
        age = time.monotonic() - self._token_read_at
        if renew or age > TOKEN_KEPT_SECONDS:
            self._token = await asyncio.to_thread(_read_token, self._configuration)
            self._token_read_at = time.monotonic()
        return self._token


def load_credentials(kubeconfig: Path | None = None, context: str | None = None) -> Credentials:
    """Read a kubeconfig file; without one `~/.kube/config`, else the pod's own service account.

    Raises `CredentialsError` with the reason.
    """
    configuration = client.Configuration()
    if kubeconfig is None and DEFAULT_KUBECONFIG.expanduser().exists():
        kubeconfig = DEFAULT_KUBECONFIG.expanduser()
    try:
        if kubeconfig is None:
            config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=configuration
            )
        else:
            config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=str(kubeconfig), context=context, client_configuration=configuration
            )
    except (config.ConfigException, OSError) as error:
        raise CredentialsError(str(error)) from error
    return credentials_from(configuration)


def credentials_from(configuration: Any) -> Credentials:
    """Build from an official-client `Configuration`."""
    base_url = str(configuration.host).rstrip("/")
    return Credentials(
        base_url=base_url,
        ssl_context=_ssl_context(configuration) if base_url.startswith("https") else None,
        server_hostname=configuration.tls_server_name or None,
        _configuration=configuration,
    )


def _ssl_context(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=configuration.ssl_ca_cert or None, cadata=configuration.ca_cert_data or None
    )
    if configuration.assert_hostname is False:
        context.check_hostname = False
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file or None)
    return context


def _read_token(configuration: Any) -> str | None:
    token = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
    if token:
        return str(token)
    if configuration.username:
        pair = f"{configuration.username}:{configuration.password or ''}".encode()
        return "Basic " + base64.b64encode(pair).decode()
    return None
