"""Checks of `Host` and `Origin`.

A page of any site may open a websocket to any address, and a site whose name resolves to 127.0.0.1
(DNS rebinding) even has the same origin as a service there. So a service without keys answers only
to known names, and refuses sockets and uploads from pages of other sites. These headers are
untrusted: what cannot be parsed is not allowed.
"""

import ipaddress
import re
from collections.abc import Collection
from contextlib import suppress
from fnmatch import fnmatchcase

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
# Nobody can register public names under these (RFC 6761, RFC 6762, RFC 8375; `internal` is
# reserved by ICANN).
_PRIVATE_SUFFIXES = (".localhost", ".local", ".home.arpa", ".internal", ".test")
_DEFAULT_PORTS = {"http": 80, "https": 443}
# RFC 3986, section 3.2, without users and escapes, which neither header may have.
_AUTHORITY = re.compile(
    r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:(?P<port>[0-9]{1,5}))?", re.IGNORECASE
)


def host_allowed(host: str | None, allowed: Collection[str]) -> bool:
    """Whether a `Host` header, with any port, is allowed; `*.example.org` matches subdomains. An
    empty list allows every name."""
    name, _ = _split(host)
    return not allowed or any(fnmatchcase(name, entry) for entry in allowed)


def host_is_private(host: str | None) -> bool:
    """Whether a `Host` header, with any port, is an address or a name of a local network. DNS
    rebinding needs a name of the public DNS, which contains a dot."""
    name, _ = _split(host)
    with suppress(ValueError):
        return ipaddress.ip_address(name) is not None
    return bool(name) and ("." not in name or name.endswith(_PRIVATE_SUFFIXES))


def origin_allowed(origin: str | None, host: str | None, allowed: Collection[str]) -> bool:
    """Whether a request with this `Origin` comes from a program, its own page or an allowed one.
    Programs send no origin. The service's own page has the origin that `Host` names; the scheme is
    not compared, since a proxy in front may terminate TLS."""
    if origin is None or origin in allowed:
        return True
    scheme, _, authority = origin.partition("://")
    default = _DEFAULT_PORTS.get(scheme.lower(), 0)
    name, port = _split(authority)
    own_name, own_port = _split(host)
    return bool(name and default) and (name, port or default) == (own_name, own_port or default)


def _split(authority: str | None) -> tuple[str, int]:
    """Host name in lower case, without brackets, and port or 0; no name if it cannot be parsed."""
    match = _AUTHORITY.fullmatch(authority or "")
    port = int(match["port"] or 0) if match else 0
    if match is None or port > 65535:
        return "", 0
    return match["name"].lower().strip("[]"), port
