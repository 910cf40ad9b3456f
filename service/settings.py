"""Settings of the service: one value per limit, each read from the environment as `RSE_<NAME>`."""

from __future__ import annotations

import ipaddress
import re
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from service.protocol.options import Mode

_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/*\s]+")

# The narrowest stream that must always make progress: half a second of the widest audio that is
# accepted (192 kHz, two channels, float32) would be 768 KiB, so a message may be much smaller.
_LEAST_MESSAGE_BYTES = 1024


def is_loopback(address: str) -> bool:
    """Whether nobody but this machine reaches a server that listens on this address."""
    if address.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


class LogFormat(StrEnum):
    """How a line of the log looks."""

    TEXT = "text"
    JSON = "json"


Names = Annotated[tuple[str, ...], NoDecode]
"""Given with commas between them."""


class Settings(BaseSettings):
    """Everything an operator may change; a value that makes no sense stops the start.

    Raises `pydantic.ValidationError`, naming each field at fault, when it is built.
    """

    model_config = SettingsConfigDict(
        env_prefix="RSE_", extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    host: str = Field(default="127.0.0.1", min_length=1)
    """Address to listen on."""

    port: int = Field(default=8000, ge=1, le=65535)
    """TCP port to listen on."""

    model: str = Field(default="auto", min_length=1)
    """Name of shipped weights, or the path of a .safetensors file with its .json beside it; auto
    is `accurate` where it runs on CUDA and `live` on a CPU."""

    device: str = "auto"
    """Where the network runs: auto (CUDA if there, else CPU), cpu, cuda or cuda:N."""

    mode: Mode = Mode.BLOCK
    """How frames are emitted where a session does not choose: block or centre."""

    keys_file: str = ""
    """File of API keys, one a line, as `python -m service.keys new NAME` prints them."""

    keys: SecretStr = SecretStr("")
    """Further API keys in the same form, with blanks between them."""

    allow_open: bool = False
    """Whether everybody who reaches another address than loopback may use it without a key."""

    allowed_hosts: Names = ()
    """Names, without port, that `Host` may have; *.example.org is a suffix. None given: with keys
    any; without, against DNS rebinding, those of loopback on loopback, elsewhere addresses, names
    without a dot, and names under localhost, local, internal, home.arpa and test."""

    allowed_origins: Names = ()
    """Origins, such as https://app.example.org, whose pages may use the service, beside its own."""

    trusted_proxies: Names = ("127.0.0.1",)
    """Addresses of proxies whose X-Forwarded-For and -Proto are believed."""

    token_lifetime_s: float = Field(default=30.0, ge=1, le=600)
    """Seconds in which a token of `POST /token` opens its one websocket."""

    max_tokens: int = Field(default=10_000, ge=1, le=1_000_000)
    """Spent tokens that are remembered until they expire; beyond it none is taken."""

    max_requests_per_s: float = Field(default=20.0, ge=0.01, le=1_000_000)
    """Requests and handshakes of one client in a second, on average; the next is refused with
    429. A client is an API key, or else an address (of IPv6, a /64 network). The page's files and
    the probes do not count."""

    max_request_burst: int = Field(default=200, ge=1, le=1_000_000)
    """Requests of one client at once."""

    max_clients: int = Field(default=10_000, ge=1, le=10_000_000)
    """Clients whose rate of requests is remembered; beyond it the least recent is forgotten."""

    max_sessions: Literal["auto"] | Annotated[int, Field(ge=1, le=100_000)] = "auto"
    """Live sessions at one time, 1 to 100,000; the next is refused with 503. auto measures at the
    start, for a second or two, how many this machine carries on time, and keeps the figure in
    `rse-transcribe` in the user's cache folder. A cluster needs a number."""

    max_sessions_per_client: int = Field(default=8, ge=1, le=100_000)
    """Live sessions of one client at one time; the next is refused with 429."""

    max_session_s: float = Field(default=4 * 3600.0, ge=1, le=48 * 3600)
    """Longest session, in seconds of wall-clock time and likewise of audio."""

    idle_timeout_s: float = Field(default=30.0, ge=0.1, le=3600)
    """Seconds without any message from the client after which a session is ended."""

    max_notes: int = Field(default=200_000, ge=1, le=10_000_000)
    """Notes that a session or a recording keeps for its MIDI file."""

    max_message_bytes: int = Field(
        default=1024 * 1024, ge=_LEAST_MESSAGE_BYTES, le=16 * 1024 * 1024
    )
    """Largest websocket message a client may send, in bytes; 5 s of 48 kHz float32."""

    max_messages_per_s: float = Field(default=5000.0, ge=10, le=1_000_000)
    """Websocket messages of any kind that a session may send in a second, on average; what comes
    faster is not read yet."""

    max_message_burst: int = Field(default=50_000, ge=1, le=1_000_000)
    """Websocket messages that a session may send at once."""

    max_buffered_ms: float = Field(default=2000.0, ge=100, le=60_000)
    """Audio of a session that may await transcription, in ms; beyond it the socket is not read."""

    max_pace: float = Field(default=10.0, ge=1, le=1000)
    """Seconds of audio that a live stream may send in a second, on average; what comes faster is
    not read yet."""

    pace_burst_s: float = Field(default=10.0, ge=0.1, le=600)
    """Seconds of audio that a live stream may send at once."""

    lagging_ms: float = Field(default=500.0, ge=10, le=60_000)
    """Untranscribed audio, in ms, from which a session is told that it is lagging."""

    progress_interval_ms: float = Field(default=500.0, ge=20, le=60_000)
    """Time between two progress messages of a session, in ms."""

    max_outbound_messages: int = Field(default=1024, ge=16, le=1_000_000)
    """Messages that may wait for a slow client before its session pauses."""

    send_timeout_s: float = Field(default=10.0, ge=0.1, le=600)
    """Seconds that a full outbound queue may stand still before the client is given up."""

    drain_timeout_s: float = Field(default=20.0, ge=0.1, le=3600)
    """Seconds that open sessions and uploads have to end after SIGTERM."""

    max_uploads: int = Field(default=4, ge=1, le=10_000)
    """Recordings transcribed at one time; the next upload is refused with 503."""

    max_uploads_per_client: int = Field(default=2, ge=1, le=10_000)
    """Recordings of one client transcribed at one time; the next is refused with 429."""

    max_upload_bytes: int = Field(default=512 * 1024 * 1024, ge=1024, le=64 * 1024**3)
    """Largest upload, in bytes of the request body."""

    max_upload_s: float = Field(default=2 * 3600.0, ge=1, le=48 * 3600)
    """Longest recording, in seconds once decoded (a small FLAC can hold hours)."""

    hang_timeout_s: float = Field(default=60.0, ge=0.5, le=3600)
    """Seconds without a heartbeat after which the model's worker is taken to hang and replaced;
    longer than the slowest batch."""

    log_format: LogFormat = LogFormat.TEXT
    """text, or json: one object a line."""

    retry_after_s: int = Field(default=5, ge=1, le=3600)
    """What a refused client is told to wait before it tries again, in seconds."""

    @field_validator("allowed_hosts", "allowed_origins", "trusted_proxies", mode="before")
    @classmethod
    def _split_names(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return tuple(name for entry in value.split(",") if (name := entry.strip()))

    @field_validator("allowed_hosts")
    @classmethod
    def _no_ports(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if "/" in host or host.count(":") == 1:
                raise ValueError(f"expected names without scheme and port, got {host!r}")
        return tuple(host.lower().strip("[]") for host in hosts)

    @field_validator("allowed_origins")
    @classmethod
    def _whole_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if _ORIGIN.fullmatch(origin) is None:
                raise ValueError(f"expected scheme://host[:port], got {origin!r}")
        return origins

    @field_validator("device")
    @classmethod
    def _known_device(cls, device: str) -> str:
        if _DEVICE.fullmatch(device) is None:
            raise ValueError(f"expected auto, cpu, cuda or cuda:N, got {device!r}")
        return device

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        if not (is_loopback(self.host) or self.has_keys or self.allow_open):
            raise ValueError(
                f"host is {self.host}, which others reach, and there are no API keys: make one "
                "with `python -m service.keys new NAME >> keys` and set RSE_KEYS_FILE=keys, or "
                "let everybody in with RSE_ALLOW_OPEN=1"
            )
        if self.lagging_ms > self.max_buffered_ms:
            raise ValueError("lagging_ms is above max_buffered_ms: no session could ever be told")
        if self.idle_timeout_s > self.max_session_s:
            raise ValueError("idle_timeout_s is above max_session_s: it would never be reached")
        if self.progress_interval_ms >= 1000 * self.idle_timeout_s:
            raise ValueError("progress_interval_ms is not below idle_timeout_s")
        return self

    @property
    def has_keys(self) -> bool:
        """Whether clients have to show a key."""
        return bool(self.keys_file or self.keys.get_secret_value())
