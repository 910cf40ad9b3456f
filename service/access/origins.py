"""Checks of `Host` and `Origin`.

A page of any site may open a websocket to any address, and a site whose name resolves to 127.0.0.1
(DNS rebinding) even has the same origin as a service there. So a service without keys answers only
to known names, and refuses sockets and uploads from pages of other sites. These headers are
untrusted: what cannot be parsed is not allowed.
"""

import ipaddress
import re
from collections.abc import Collection

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
    """Whether a `Host` header, with any port, is allowed; `*.example.org` matches subdomains.

    An empty list allows every name.
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
    """Whether a `Host` header, with any port, is an address or a name of a local network.

    DNS rebinding needs a name of the public DNS, which contains a dot.
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
    """Whether a request with this `Origin` comes from a program, its own page or an allowed one.

    Programs send no origin. The service's own page has the origin that `Host` names; the scheme is
    not compared, since a proxy in front may terminate TLS.
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
    """Host name in lower case, without brackets, and port; no name if it cannot be parsed."""
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        return None, None
    port = int(match["port"]) if match["port"] else None
    if port is not None and port > 65535:
        return None, None
    return match["name"].lower().strip("[]"), port
