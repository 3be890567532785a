"""Decides which requests the tab answers: of pages of this TensorBoard, under a name that it was started for.

A page of another site can have its own name lead to this machine (DNS rebinding). For the browser it is then of the
same origin as TensorBoard, and only the name in the ``Host`` header tells them apart.
"""

from __future__ import annotations

import os
import re
import socket
from functools import cached_property
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from werkzeug import Request

from traceadvisor.text.cleaning import clean, one_line

HOSTS = "TRACEADVISOR_TAB_HOSTS"
"""Environment variable: further names of this server, such as that of a proxy, with commas between them."""

_AUTHORITY = re.compile(
    r"(?:\[(?P<address>[0-9A-Fa-f:.]{2,64})\]|(?P<name>[\w-]+(?:\.[\w-]+)*\.?))(?::(?P<port>\d{1,5}))?"
)
_USUAL_PORTS = ("80", "443", None)


class Visitors:
    """Judges requests by the flags that TensorBoard was started with, and by the names in the environment."""

    def __init__(self, flags: Any = None) -> None:
        listens_on = str(getattr(flags, "host", None) or "localhost")
        self._is_everywhere = bool(getattr(flags, "bind_all", False)) or _is_unspecified(listens_on)
        self._takes_addresses = self._is_everywhere or not (_is_address(listens_on) or _is_loopback(listens_on))
        self._given = frozenset(filter(None, map(_name, os.environ.get(HOSTS, "").split(","))))
        self._names = self._given | {_plain(listens_on)}

    def refusal(self, request: Request) -> str | None:
        """Why a request is refused; None if it is allowed."""
        host = _name(request.headers.get("Host", ""))
        if not host or not self._is_ours(host):
            shown = one_line(clean(host or request.headers.get("Host", "")))[:253]
            return (
                f"TensorBoard was not started for the host {shown!r}. If that is its name, or the name of your proxy, "
                f"start TensorBoard with the environment variable {HOSTS} set to it."
            )
        return self.foreign(request)

    def foreign(self, request: Request) -> str | None:
        """Why a request is refused that a page of another site makes, or one of another port of this host."""
        site = request.headers.get("Sec-Fetch-Site")  # no page can set it
        if site == "same-origin" or (site in {None, "none"} and self._comes_from_here(request)):
            return None
        return "Not for other sites."

    def _comes_from_here(self, request: Request) -> bool:
        here = _origin(f"//{request.headers.get('Host', '')}")
        named = [request.headers[name] for name in ("Origin", "Referer") if name in request.headers]
        return all(
            found is not None and (found == here or _plain(found[0]) in self._given) for found in map(_origin, named)
        )

    def _is_ours(self, host: str) -> bool:
        if _is_loopback(host) or host in self._names:
            return True
        if _is_address(host):  # not a name, so that it leads nowhere else
            return self._takes_addresses
        return self._is_everywhere and host in self._names_of_machine

    @cached_property
    def _names_of_machine(self) -> frozenset[str]:
        short, full = _plain(socket.gethostname()), _plain(socket.getfqdn())
        return frozenset({short, full, full.partition(".")[0], f"{short.partition('.')[0]}.local"})


def _origin(url: str) -> tuple[str, str | None] | None:
    """Host, as a browser compares it, and port of a URL; None if it has none, as the origin of a sandboxed frame."""
    try:
        found = _AUTHORITY.fullmatch(urlsplit(url).netloc)
    except ValueError:
        return None
    if not found:
        return None
    port = found["port"]
    return (found["address"] or found["name"]).lower(), None if port in _USUAL_PORTS else port


def _name(authority: str) -> str | None:
    """The host of ``host:port``; None if it is no such text, or more than that."""
    origin = _origin(f"//{authority.strip()}") if _AUTHORITY.fullmatch(authority.strip()) else None
    return origin and _plain(origin[0])


def _plain(name: str) -> str:
    return name.lower().rstrip(".").strip("[]")


def _is_address(host: str) -> bool:
    try:
        ip_address(_plain(host))
    except ValueError:
        return False
    return True


def _is_unspecified(host: str) -> bool:
    return _is_address(host) and ip_address(_plain(host)).is_unspecified


def _is_loopback(host: str) -> bool:
    """Whether a name or an address always leads to this machine (RFC 6761, section 6.3)."""
    if not _is_address(host):
        return _plain(host) == "localhost" or _plain(host).endswith(".localhost")
    address = ip_address(_plain(host))
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
