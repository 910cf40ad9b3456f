"""Settings, read from the environment: `RSE_<NAME>`."""

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from service.protocol.options import Mode

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

    trusted_proxies: Annotated[Names, AfterValidator(_proxies)] = ()
    """Addresses and networks of proxies, such as 10.0.0.0/8, whose X-Forwarded-For and
    X-Forwarded-Proto are trusted; * alone trusts every client. None by default."""

    max_sessions: Literal["auto"] | Annotated[int, Field(ge=1, le=100_000)] = "auto"
    """Concurrent live sessions, 1 to 100,000; the next one gets 503. auto measures what the machine
    carries (see below)."""

    max_sessions_per_client: Literal["auto"] | Annotated[int, Field(ge=1, le=100_000)] = "auto"
    """Concurrent live sessions of one client, 1 to 100,000; the next one gets 429. auto is half of
    the places, at most 8."""

    max_session_s: float = Field(default=4 * 3600.0, ge=1, le=48 * 3600)
    """Maximum length of a session in seconds, of wall-clock time and of audio."""

    idle_timeout_s: float = Field(default=30.0, ge=0.1, le=3600)
    """Seconds without a message or data from the client after which its session or upload ends, and
    without a request after which a kept-alive connection does."""

    drain_timeout_s: float = Field(default=20.0, ge=0.1, le=3600)
    """Seconds for open sessions and uploads to end after SIGTERM; uploads that are still being
    received are given up at once."""

    max_uploads: int = Field(default=4, ge=1, le=10_000)
    """Concurrent uploads; the next one gets 503."""

    max_upload_bytes: int = Field(default=512 * 1024 * 1024, ge=1024, le=64 * 1024**3)
    """Maximum size of an upload's request body, in bytes."""

    max_upload_s: float = Field(default=2 * 3600.0, ge=1, le=48 * 3600)
    """Maximum length of a decoded recording, in seconds (a small FLAC can hold hours)."""

    workers: Literal["auto"] | Annotated[int, Field(ge=1, le=256)] = "auto"
    """Worker processes, 1 to 256, each with a copy of the network (0.2 GB); auto is one for each
    core of a CPU, at most 8, or one for a GPU. 1 on a CPU is a thread of the service."""

    hang_timeout_s: float = Field(default=60.0, ge=0.5, le=3600)
    """Seconds without an answer after which a worker is replaced."""

    log_format: Literal["text", "json"] = "text"
    """text, or json with one object per line."""

    @model_validator(mode="after")
    def _keys_if_reachable(self) -> Self:
        if not (is_loopback(self.host) or self.has_keys or self.allow_open):
            raise ValueError(
                f"others can reach host {self.host}, and there are no API keys: make one with "
                "`rse-transcribe keys new NAME >> keys` and set RSE_KEYS_FILE=keys, or serve "
                "everybody with RSE_ALLOW_OPEN=1"
            )
        return self

    @property
    def has_keys(self) -> bool:
        """Whether clients need a key."""
        return bool(self.keys_file or self.keys.get_secret_value())


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """A warning for each variable `RSE_...` that is not a setting.

    They do not stop the start: some belong to tests, and Kubernetes makes others from the name of a
    Service.
    """
    known = [f"RSE_{name.upper()}" for name in Settings.model_fields]
    warnings = []
    for name in sorted(environment):
        if name.upper().startswith("RSE_") and name.upper() not in {*known, *_OF_CLIENTS}:
            near = difflib.get_close_matches(name.upper(), known, 1, 0.8)
            hint = f"; did you mean {near[0]}?" if near else ""
            warnings.append(f"the variable {name} is not a setting of the service{hint}")
    return warnings
