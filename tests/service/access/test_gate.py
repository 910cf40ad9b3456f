"""Tests of the gate: which clients it admits, and which errors the others receive."""

import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse

from service.access.gate import LOOPBACK_HOSTS, client_name_for, host_allowed, origin_allowed
from service.access.keys import hash_key
from service.live import websocket
from tests.service.apps import ADDRESS, receive_all, serving, start_session

ALICE, BOB = "rse_alice-has-a-long-secret", "rse_bob-has-another"
KEYS = f"alice:{hash_key(ALICE).hex()} bob:{hash_key(BOB).hex()}"
guarded = partial(serving, keys=KEYS)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def run_silent_session(client: TestClient, **options: Any) -> str | None:
    """Run a session without audio. Return the accepted subprotocol."""
    with client.websocket_connect(ADDRESS, **options) as socket:
        start_session(socket)
        socket.send_text('{"type": "stop"}')
        assert receive_all(socket)[1] == 1000
        subprotocol: str | None = socket.accepted_subprotocol
        return subprotocol


def handshake_rejection(client: TestClient, **options: Any) -> tuple[int, str]:
    """Return the status and the code of a handshake that is rejected over HTTP."""
    with (
        pytest.raises(WebSocketDenialResponse) as denial,
        client.websocket_connect(ADDRESS, **options),
    ):
        pass
    return denial.value.status_code, denial.value.json()["code"]


def browser_rejection(client: TestClient, **options: Any) -> tuple[str, int]:
    """Return the error that a browser receives if it is rejected."""
    headers = {"Origin": "http://testserver", **options.pop("headers", {})}
    with client.websocket_connect(ADDRESS, headers=headers, **options) as socket:
        messages, code = receive_all(socket)
    assert [message["type"] for message in messages] == ["error"]
    return messages[0]["code"], code


def test_page_and_probes_need_no_key() -> None:
    with guarded() as client:
        for path in ("/", "/app.js", "/docs", "/openapi.json", "/healthz", "/readyz"):
            assert client.get(path).status_code == 200
        for path in ("/info", "/metrics", "/score", "/token", "/transcribe"):
            for method in ("GET", "POST", "HEAD"):
                response = client.request(method, path)
                assert response.status_code == 401, (method, path)
                assert response.headers["WWW-Authenticate"] == "Bearer"
            assert client.get(path).json()["code"] == "unauthorized"
        below = TestClient(client.app, root_path="/music")  # the application runs already
        assert below.get("/music/healthz").json() == {"status": "ok"}
        assert below.get("/music/info").status_code == 401


def test_only_a_valid_bearer_key_is_accepted() -> None:
    wrong = ("", "Bearer", "Bearer ", f"Basic {ALICE}", ALICE, "Bearer x", f"Bearer {ALICE[:-1]}")
    with guarded() as client:
        for header in wrong:
            headers = {"Authorization": header}
            assert client.get("/info", headers=headers).status_code == 401, header
            assert handshake_rejection(client, headers=headers) == (401, "unauthorized"), header
        assert client.get(f"/info?key={ALICE}").status_code == 401
        for header in (f"Bearer {ALICE}", f"bearer {ALICE}"):
            assert client.get("/info", headers={"Authorization": header}).status_code == 200
        assert run_silent_session(client, headers=bearer(ALICE)) is None
        assert client.post("/transcribe", headers=bearer(ALICE)).json()["code"] == "bad_upload"


def test_token_opens_a_websocket_and_is_not_echoed() -> None:
    with guarded() as client:
        response = client.post("/token", headers=bearer(ALICE))
        assert response.headers["Cache-Control"] == "no-store"
        token = response.json()["token"]
        assert client.get("/info", headers=bearer(token)).status_code == 401
        offered = ["rse.v1", f"rse.token.{token}"]
        assert run_silent_session(client, subprotocols=offered) == "rse.v1"


@pytest.mark.parametrize(("limit", "count"), [("", 2), (":sessions=3", 3)])
def test_client_may_use_half_of_the_slots_or_its_own_limit(limit: str, count: int) -> None:
    with ExitStack() as stack:
        keys = KEYS.replace(" bob", f"{limit} bob")
        client = stack.enter_context(
            serving(keys=keys, max_sessions=4, max_sessions_per_client="auto")
        )
        for _ in range(count):
            stack.enter_context(client.websocket_connect(ADDRESS, headers=bearer(ALICE)))
        assert handshake_rejection(client, headers=bearer(ALICE)) == (429, "client_limit")
        assert run_silent_session(client, headers=bearer(BOB)) is None


def test_removed_key_and_its_tokens_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.app.KEYS_POLL_S", 0.01)
    keys = tmp_path / "keys"
    keys.write_text(KEYS.replace(" ", "\n"))
    with serving(keys_file=str(keys)) as client:
        token = client.post("/token", headers=bearer(ALICE)).json()["token"]
        keys.write_text(KEYS.split()[1])
        while client.get("/info", headers=bearer(ALICE)).status_code == 200:
            time.sleep(0.01)
        offered = ["rse.v1", f"rse.token.{token}"]
        assert handshake_rejection(client, subprotocols=offered) == (401, "unauthorized")
        assert client.get("/info", headers=bearer(BOB)).status_code == 200


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8::f:2", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
    ],
)
def test_ipv6_network_counts_as_one_client(address: str, client: str) -> None:
    assert client_name_for((address, 9)) == f"address {client}"


def test_proxy_can_request_rejection_by_http_status(monkeypatch: pytest.MonkeyPatch) -> None:
    to_page = {"Origin": "http://testserver"}
    for_proxy = {**to_page, "X-Refuse-With": "status", **bearer(ALICE)}
    with guarded(max_sessions=1) as client:
        assert browser_rejection(client, subprotocols=["rse.v1", "rse.token.forged"]) == (
            "unauthorized",
            4401,
        )
        with client.websocket_connect(ADDRESS, headers=bearer(ALICE)) as socket:
            start_session(socket)
            assert handshake_rejection(client, headers=for_proxy) == (503, "too_many_sessions")
            assert browser_rejection(client, headers=bearer(ALICE)) == ("too_many_sessions", 4429)
            # Even if the client may be resuming the session of a connection that is dead.
            monkeypatch.setattr(websocket, "GHOST_IDLE_S", 0.0)
            assert handshake_rejection(client, headers=for_proxy) == (503, "too_many_sessions")


LOOPBACK = dict.fromkeys(("localhost", "127.0.0.1:8000", "[::1]:8000"), 200)
LISTED = {"music.example.org": 200, "192.0.2.7": 421, "evil.com:8000": 421}


@pytest.mark.parametrize(
    ("settings", "statuses"),
    [
        ({}, {**LOOPBACK, "localhost.evil.example:8000": 421}),
        ({"host": "0.0.0.0", "allow_open": True, "allowed_hosts": ()}, {"anything.example": 200}),
        ({"keys": KEYS, "allowed_hosts": ()}, {"anything.example": 200}),
        ({"keys": KEYS, "allowed_hosts": ("music.example.org",)}, LISTED),
    ],
)
def test_only_allowed_hosts_are_served(settings: dict[str, Any], statuses: dict[str, int]) -> None:
    with serving(**settings) as client:
        for host, status in statuses.items():
            headers = {"Host": host, **bearer(ALICE)}
            assert client.get("/info", headers=headers).status_code == status
            assert client.get("/", headers=headers).status_code == status
            assert client.get("/healthz", headers=headers).status_code == 200
            twice = [("Host", host), ("Host", host), *bearer(ALICE).items()]
            assert client.get("/info", headers=twice).status_code == 421
            if status == 421:
                assert handshake_rejection(client, headers=headers) == (421, "host_not_allowed")
                from_there = {**headers, "Origin": f"http://{host}"}
                assert handshake_rejection(client, headers=from_there) == (421, "host_not_allowed")


def test_foreign_origins_are_rejected() -> None:
    with serving() as client:
        headers = {"Origin": "http://evil.example"}
        assert handshake_rejection(client, headers=headers) == (403, "origin_not_allowed")
        response = client.post("/transcribe", headers=headers)
        assert (response.status_code, response.json()["code"]) == (403, "origin_not_allowed")
        info = client.get("/info", headers=headers)
        assert info.status_code == 200
        assert "Access-Control-Allow-Origin" not in info.headers  # so browsers cannot read it


def test_allowed_origins_may_use_the_service() -> None:
    origin = "https://app.example.org"
    with guarded(allowed_origins=(origin,)) as client:
        headers = {
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization",
        }
        preflight = client.options("/token", headers=headers)
        assert preflight.status_code == 200
        assert preflight.headers["Access-Control-Allow-Origin"] == origin
        headers["Origin"] = "https://x.y"
        assert client.options("/token", headers=headers).status_code == 400
        response = client.post("/token", headers={"Origin": origin, **bearer(ALICE)})
        assert response.headers["Access-Control-Allow-Origin"] == origin
        info = client.get("/info", headers={"Origin": "https://x.y", **bearer(ALICE)})
        assert info.status_code == 200
        assert "Access-Control-Allow-Origin" not in info.headers
        offered = ["rse.v1", f"rse.token.{response.json()['token']}"]
        assert (
            run_silent_session(client, headers={"Origin": origin}, subprotocols=offered) == "rse.v1"
        )


# -- Host and Origin ------------------------------------------------------------------------------

OWN = ("localhost", "LOCALHOST:8000", "127.0.0.1", "127.0.0.1:9", "[::1]", "[::1]:8000")
OTHER = (
    *(None, "", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000"),
    *("evil.example/localhost", "x@localhost", "localhost:99999", "[::1", "::1", "a:b:c"),
    *("localhost ", "localhost#", "0x7f000001", "\x00"),
)


@pytest.mark.parametrize("host", [*OWN, *OTHER])
def test_only_loopback_names_are_loopback_hosts(host: str | None) -> None:
    assert host_allowed(host, LOOPBACK_HOSTS) == (host in OWN)


def test_wildcard_hosts_match_subdomains_only() -> None:
    assert host_allowed("music.example.org:443", ("music.example.org",))
    assert host_allowed("a.example.org", ("*.example.org",))
    assert not host_allowed("example.org", ("*.example.org",))
    assert not host_allowed("evilexample.org", ("*.example.org",))


ALLOWED = ("https://app.example.org", "capacitor://localhost")


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (None, "localhost:8000"),
        ("http://LocalHost:8000", "localhost:8000"),
        ("https://music.example.org", "music.example.org"),
        ("https://music.example.org", "music.example.org:443"),
        ("http://[::1]:8000", "[::1]:8000"),
        ("https://app.example.org", "api.example.org"),
        ("capacitor://localhost", "api.example.org"),
    ],
)
def test_same_and_allowed_origins_are_accepted(origin: str | None, host: str) -> None:
    assert origin_allowed(origin, host, ALLOWED)


@pytest.mark.parametrize(
    "origin",
    [
        *("", "null", "http://evil.example", "http://localhost", "http://localhost:8001"),
        *("http://localhost:8000.evil.example", "http://localhost:8000@evil.example"),
        *("http://localhost:8000/", "http://localhost:8000#x", "ftp://localhost:8000"),
        *("http://[::1", "http://localhost:999999", "http://", "://", "localhost:8000", "http:"),
        *("https://app.example.org.evil.example", "https://app.example.org:444", "\xff\x00"),
    ],
)
def test_foreign_and_malformed_origins_are_rejected(origin: str) -> None:
    assert not origin_allowed(origin, "localhost:8000", ALLOWED)
