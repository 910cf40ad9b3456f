"""The checks of `Host` and `Origin`: under which name, and from which page.

A page of any site may open a websocket to any address, and a site whose name is made to resolve to
127.0.0.1 (DNS rebinding) is even of the same origin as the service there. So a service without keys
answers only to names it knows, and refuses sockets and uploads from pages of other sites.
These headers are untrusted: what cannot be parsed is not allowed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
# Under these nobody can register a name and have it resolve to somebody else's machine (RFC 6761,
# RFC 6762, RFC 8375; `internal` is reserved by ICANN).
_PRIVATE_SUFFIXES = (".localhost", ".local", ".home.arpa", ".internal", ".test")
_DEFAULT_PORTS = {"http": 80, "https": 443}
# RFC 3986, section 3.2, less what neither header may have: a user, and escapes.
_AUTHORITY = re.compile(
    r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:(?P<port>[0-9]{1,5}))?", re.IGNORECASE
)


def host_allowed(host: str | None, allowed: Collection[str]) -> bool:
    """Whether a `Host` header, of any port, names one of the allowed; `*.example.org` is a suffix.

    Nothing allowed means that every name is.
    """
    if not allowed:
        return True
    name, _ = _split(host or "")
    if name is None:
        return False
    return any(
        name.endswith(entry[1:]) if entry.startswith("*.") else name == entry for entry in allowed
    )


def host_is_private(host: str | None) -> bool:
    """Whether a `Host` header, of any port, is no name that a site of the web could have.

    An address, or a name of the local network or of containers: DNS rebinding needs a name of the
    public DNS, which has a dot in it.
    """
    name, _ = _split(host or "")
    if name is None:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." not in name or name.endswith(_PRIVATE_SUFFIXES)
    return True


def origin_allowed(origin: str | None, host: str | None, allowed: Collection[str]) -> bool:
    """Whether a request with this `Origin` is none of a foreign page.

    Programs send none. A page of the service itself has the origin that `Host` names; the scheme is
    not compared, as a proxy in front may speak TLS for us.
    """
    if origin is None:
        return True
    if origin in allowed:
        return True
    scheme, _, authority = origin.partition("://")
    default = _DEFAULT_PORTS.get(scheme.lower())
    name, port = _split(authority)
    own_name, own_port = _split(host or "")
    if default is None:
        return False
    return name is not None and (name, port or default) == (own_name, own_port or default)


def _split(authority: str) -> tuple[str | None, int | None]:
    """Host name in lower case, without brackets, and port; no name where it cannot be read."""
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        return None, None
    port = int(match["port"]) if match["port"] else None
    if port is not None and port > 65535:
        return None, None
    return match["name"].lower().strip("[]"), port
