"""Settings, read from the environment: `RSE_<NAME>`, on a cluster also `RSE_CLUSTER_<NAME>`."""

import difflib
import ipaddress
import re
import resource
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from service.protocol.options import Mode

OTHER_FILES = 100  # that a process may have open beside its connections
_OF_CLIENTS = {"RSE_KEY"}
_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
_HOST = re.compile(r"(\*\.)?[a-z0-9_-][a-z0-9_.-]*")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?")


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach a server on this address."""
    if address.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _host(name: str) -> str:
    """A name in lower case as `Host` has it, without brackets; raises ValueError."""
    with suppress(ValueError):
        return str(ipaddress.ip_address(name.strip("[]")))
    if _HOST.fullmatch(name) is None:
        raise ValueError(
            "expected names without scheme and port, such as music.example.org or *.example.org, "
            f"got {name!r}"
        )
    return name


def _origin(origin: str) -> str:
    """An origin in lower case, without the port that its scheme implies; raises ValueError."""
    if _ORIGIN.fullmatch(origin) is None:
        raise ValueError(f"expected scheme://host[:port], got {origin!r}")
    return origin.removesuffix({"http": ":80", "https": ":443"}.get(origin.partition(":")[0], ""))


def _proxies(proxies: tuple[str, ...]) -> tuple[str, ...]:
    if proxies != ("*",):
        for proxy in proxies:
            ipaddress.ip_network(proxy)
    return proxies


def _device(device: str) -> str:
    if _DEVICE.fullmatch(device) is None:
        raise ValueError(f"expected auto, cpu, cuda or cuda:N, got {device!r}")
    return device


def _split(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return tuple(name for entry in value.split(",") if (name := entry.strip()))


def _each(check: Callable[[str], str]) -> AfterValidator:
    return AfterValidator(lambda names: tuple(check(name.lower()) for name in names))


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
"""Comma-separated in the environment."""


class Settings(BaseSettings):
    """Everything that an operator can change.

    Raises `pydantic.ValidationError`, naming each invalid field.
    """

    model_config = SettingsConfigDict(
        env_prefix="RSE_", extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    host: str = Field(default="127.0.0.1", min_length=1)
    """Address to listen on."""

    port: int = Field(default=8000, ge=1, le=65535)
    """TCP port to listen on."""

    model: str = Field(default="auto", min_length=1)
    """Name of shipped weights, or path of a .safetensors file with its .json beside it; auto is
    `accurate` on CUDA, `live` on a CPU that multiplies bfloat16 and `light` on others."""

    device: Annotated[str, AfterValidator(_device)] = "auto"
    """Where the network runs: auto (CUDA if available), cpu, cuda or cuda:N."""

    mode: Mode = Mode.BLOCK
    """Default mode of live sessions: block, centre or anytime."""

    keys_file: str = ""
    """File of API keys, one per line, as printed by `rse-transcribe keys new NAME`."""

    keys: SecretStr = SecretStr("")
    """Further API keys in the same form, separated by spaces."""

    allow_open: bool = False
    """Whether to serve without keys on an address other than loopback."""

    allowed_hosts: Annotated[Names, _each(_host)] = ()
    """Names accepted in `Host`, without port; *.example.org matches subdomains (see Access)."""

    allowed_origins: Annotated[Names, _each(_origin)] = ()
    """Origins of other pages that may use the service, such as https://app.example.org."""

    trusted_proxies: Annotated[Names, AfterValidator(_proxies)] = ("127.0.0.1",)
    """Addresses and networks of proxies, such as 10.0.0.0/8, whose X-Forwarded-For and
    X-Forwarded-Proto are trusted; * alone trusts every client."""

    token_lifetime_s: float = Field(default=30.0, ge=1, le=600)
    """Seconds for which a token of `POST /token` is valid; it opens one websocket."""

    max_requests_per_s: float = Field(default=20.0, ge=0.01, le=1_000_000)
    """Average requests and handshakes per second of one client, beyond which it gets 429."""

    max_request_burst: int = Field(default=200, ge=1, le=1_000_000)
    """Requests that one client may make at once."""

    max_connections: Literal["auto"] | Annotated[int, Field(ge=10, le=1_000_000)] = "auto"
    """Maximum number of open connections, including idle ones, 10 to 1,000,000; further ones are
    closed at once, and refusals are logged at most once a minute. auto is `ulimit -n` less 100."""

    max_sessions: Literal["auto"] | Annotated[int, Field(ge=1, le=100_000)] = "auto"
    """Concurrent live sessions, 1 to 100,000; the next one gets 503. auto measures what the machine
    carries (see below)."""

    max_load: float = Field(default=0.4, ge=0.05, le=1)
    """With auto, fraction of the measured windows per second that sessions may ask for."""

    max_sessions_per_client: int = Field(default=8, ge=1, le=100_000)
    """Concurrent live sessions of one client; the next one gets 429."""

    max_session_s: float = Field(default=4 * 3600.0, ge=1, le=48 * 3600)
    """Maximum length of a session in seconds, of wall-clock time and of audio."""

    idle_timeout_s: float = Field(default=30.0, ge=0.1, le=3600)
    """Seconds without a message or data from the client after which its session or upload ends, and
    within which a new or kept-alive connection must send a request."""

    max_notes: int = Field(default=200_000, ge=1, le=10_000_000)
    """Maximum number of notes in a session or recording."""

    max_message_bytes: int = Field(default=1024 * 1024, ge=1024, le=16 * 1024 * 1024)
    """Maximum size of a websocket message, in bytes; the default holds 5 s of 48 kHz float32."""

    max_messages_per_s: float = Field(default=5000.0, ge=10, le=1_000_000)
    """Average websocket messages per second of a session, with pings and fragments; faster senders
    are slowed down."""

    max_buffered_ms: float = Field(default=2000.0, ge=100, le=60_000)
    """Audio of a session that may await transcription, in ms; beyond it the
    service stops reading the socket."""

    max_inbound_messages: int = Field(default=1024, ge=16, le=1_000_000)
    """Received messages that may await transcription; beyond it the
    service stops reading the socket."""

    max_pace: float = Field(default=10.0, ge=1, le=1000)
    """Average seconds of audio per second of a live stream; faster senders are slowed down."""

    lagging_ms: float = Field(default=500.0, ge=10, le=60_000)
    """Untranscribed audio, in ms, above which a session receives `lagging`."""

    progress_interval_ms: float = Field(default=500.0, ge=20, le=60_000)
    """Interval of a session's progress messages, in ms."""

    max_outbound_messages: int = Field(default=1024, ge=16, le=1_000_000)
    """Unsent messages of a slow client at which its session pauses."""

    send_timeout_s: float = Field(default=10.0, ge=0.1, le=600)
    """Seconds for which a full outbound queue, or the answer to a ping, may stall before the client
    is dropped."""

    drain_timeout_s: float = Field(default=20.0, ge=0.1, le=3600)
    """Seconds for open sessions and uploads to end after SIGTERM; uploads that are still being
    received are given up at once."""

    max_uploads: int = Field(default=4, ge=1, le=10_000)
    """Concurrent uploads; the next one gets 503."""

    max_uploads_per_client: int = Field(default=2, ge=1, le=10_000)
    """Concurrent uploads of one client; the next one gets 429."""

    max_upload_bytes: int = Field(default=512 * 1024 * 1024, ge=1024, le=64 * 1024**3)
    """Maximum size of an upload's request body, in bytes."""

    max_receive_s: float = Field(default=3 * 3600.0, ge=0.1, le=72 * 3600)
    """Maximum time for an upload's request body to arrive, in seconds. Audio may come as slowly as
    it is played, so the default exceeds that of RSE_MAX_UPLOAD_S."""

    max_upload_s: float = Field(default=2 * 3600.0, ge=1, le=48 * 3600)
    """Maximum length of a decoded recording, in seconds (a small FLAC can hold hours)."""

    max_batch_windows: int = Field(default=32, ge=4, le=4096)
    """Maximum number of live windows in a batch; a session asks for up to 4 at once. On a CPU never
    more than 4."""

    max_step_ms: float = Field(default=25.0, ge=1, le=10_000)
    """Longest batch in ms, as estimated at start-up: the longest wait of a live window."""

    worker_processes: int = Field(default=8, ge=0, le=256)
    """On a CPU with several cores, the maximum number of worker processes, one for each core
    (Linux); further cores stay unused. They are faster than threads and take 0.2 GB each. 0 or 1
    computes in threads, on all cores."""

    hang_timeout_s: float = Field(default=60.0, ge=0.5, le=3600)
    """Seconds without a heartbeat from a worker after which the engine is replaced; must exceed
    the slowest batch and the start of a worker process."""

    log_format: Literal["text", "json"] = "text"
    """text, or json with one object per line."""

    retry_after_s: int = Field(default=5, ge=1, le=3600)
    """`Retry-After` of refusals, in seconds."""

    @model_validator(mode="after")
    def _keys_if_reachable(self) -> Self:
        if not (is_loopback(self.host) or self.has_keys or self.allow_open):
            raise ValueError(
                f"others can reach host {self.host}, and there are no API keys: make one with "
                "`rse-transcribe keys new NAME >> keys` and set RSE_KEYS_FILE=keys, or serve "
                "everybody with RSE_ALLOW_OPEN=1"
            )
        return self

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if 1000 * self.hang_timeout_s <= self.max_step_ms:
            raise ValueError(
                "RSE_HANG_TIMEOUT_S is not above RSE_MAX_STEP_MS: long batches would count as hung"
            )
        # A default may be above a limit that was lowered.
        for name, limit in (
            ("lagging_ms", "max_buffered_ms"),
            ("max_uploads_per_client", "max_uploads"),
        ):
            if name in self.model_fields_set and getattr(self, name) > getattr(self, limit):
                raise ValueError(
                    f"RSE_{name.upper()} is above RSE_{limit.upper()} and would have no effect"
                )
        if "auto" not in (self.max_sessions, self.max_connections):
            if int(self.max_sessions) > int(self.max_connections):
                raise ValueError("RSE_MAX_SESSIONS is above RSE_MAX_CONNECTIONS")
        return self

    @property
    def connection_limit(self) -> int:
        """Connections that may be open."""
        if self.max_connections != "auto":
            return self.max_connections
        return max(10, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - OTHER_FILES)

    @property
    def has_keys(self) -> bool:
        """Whether clients need a key."""
        return bool(self.keys_file or self.keys.get_secret_value())


class ClusterSettings(BaseSettings):
    """Traffic between the replicas of a cluster.

    Raises `pydantic.ValidationError`, naming each invalid field.
    """

    model_config = SettingsConfigDict(
        env_prefix="RSE_CLUSTER_", extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    live_timeout_s: float = Field(default=5.0, ge=0.01, le=600)
    """Seconds a model replica has to answer for a live stream before another one is tried."""

    file_timeout_s: float = Field(default=120.0, ge=0.01, le=3600)
    """The same for a recording, which waits for all live streams."""

    max_attempts: int = Field(default=10, ge=1, le=100)
    """Attempts at a request before its session fails with a retryable `internal`."""

    heartbeat_s: float = Field(default=2.0, ge=0.01, le=60)
    """Seconds between heartbeats of the model."""

    heartbeat_patience_s: float = Field(default=15.0, ge=0.1, le=600)
    """Seconds without a heartbeat after which `/readyz` is 503 and new sessions are refused."""

    max_unread_bytes: int = Field(default=8 * 1024 * 1024, ge=64 * 1024, le=1024**3)
    """Unread bytes of a live stream, since Serve does not hold back a client that sends too fast;
    beyond it the connection is closed with 1008 and can be resumed."""

    max_streams: int = Field(default=4096, ge=1, le=1_000_000)
    """Streams whose state a model replica keeps; beyond it the least recent is dropped."""

    stream_idle_s: float = Field(default=10.0, ge=0.1, le=3600)
    """Seconds without a request after which a model replica drops a stream's state."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.heartbeat_patience_s <= self.heartbeat_s:
            raise ValueError("heartbeat_patience_s is not above heartbeat_s: all would be late")
        return self


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """A warning for each variable `RSE_...` that is not a setting.

    They do not stop the start: some belong to tests, and Kubernetes makes others from the name of a
    Service.
    """
    known = [
        settings.model_config["env_prefix"] + name.upper()
        for settings in (Settings, ClusterSettings)
        for name in settings.model_fields
    ]
    warnings = []
    for name in sorted(environment):
        if name.upper().startswith("RSE_") and name.upper() not in {*known, *_OF_CLIENTS}:
            near = difflib.get_close_matches(name.upper(), known, 1, 0.8)
            hint = f"; did you mean {near[0]}?" if near else ""
            warnings.append(f"the variable {name} is not a setting of the service{hint}")
    return warnings
