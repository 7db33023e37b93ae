"""Addresses of this machine."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..errors import BadOptionError


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens on this machine."""

    host: str
    """A loopback address, as numbers."""
    port: int
    path: str
    """What all its paths begin with."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """An address as people write it: ``localhost:8080``, ``http://127.0.0.1:1234/v1``.

        Raises:
            BadOptionError: it is none, or not of this machine.
        """
        try:
            parts = urlsplit(text if "://" in text else f"http://{text}")
            port = parts.port
        except ValueError as error:
            raise BadOptionError(f"{text!r} is no address: {error}") from None
        if parts.scheme != "http" or parts.hostname is None or parts.username is not None:
            raise BadOptionError(f"{text!r} is no address like http://127.0.0.1:8080/v1")
        if port is None:
            raise BadOptionError(f"{text!r} names no port; give one like http://127.0.0.1:8080/v1")
        path = parts.path.rstrip("/") or "/v1"
        return cls(_loopback(parts.hostname, port), port, path)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{self.path}"


def _loopback(host: str, port: int) -> str:
    """The loopback address of a host."""
    try:
        found = [host]
        if host == "localhost":
            found = [
                str(it[4][0]) for it in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            ]
        addresses = [ipaddress.ip_address(it) for it in found]
    except (OSError, ValueError):
        addresses = []
    if not addresses or not all(it.is_loopback for it in addresses):
        raise BadOptionError(
            f"{host} is not an address of this machine: only servers at localhost, 127.0.0.1 or "
            "[::1] are measured"
        )
    # Servers listen on version 4 more often than on 6.
    return str(min(addresses, key=lambda it: it.version))
