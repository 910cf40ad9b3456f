"""Settings, read from the environment: `RSE_<NAME>`."""

import ipaddress
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from service.protocol.command_line import KEY_VARIABLE

_HOST = re.compile(r"(\*\.)?[a-z0-9_-][a-z0-9_.-]*")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?")


def is_loopback(address: str) -> bool:
    """True if only this machine can reach a server that listens on this address."""
    with suppress(ValueError):
        return ipaddress.ip_address(address).is_loopback
    return address.lower() == "localhost"


def _host(name: str) -> str:
    """Return a host name, or an IP address without brackets. Raises ValueError if it is neither."""
    with suppress(ValueError):
        return str(ipaddress.ip_address(name.strip("[]")))
    if _HOST.fullmatch(name) is None:
        raise ValueError(f"expected a name without a scheme or port, or *.NAME, got {name!r}")
    return name


def _origin(origin: str) -> str:
    """Return the origin without its scheme's default port. Raises ValueError if it is invalid."""
    if _ORIGIN.fullmatch(origin) is None:
        raise ValueError(f"expected scheme://host[:port], got {origin!r}")
    return origin.removesuffix({"http": ":80", "https": ":443"}.get(origin.partition(":")[0], ""))


def _proxies(proxies: tuple[str, ...]) -> tuple[str, ...]:
    if proxies != ("*",):
        for proxy in proxies:
            ipaddress.ip_network(proxy)
    return proxies


def _split(value: Any) -> Any:
    entries = value.split(",") if isinstance(value, str) else value
    return tuple(name for entry in entries if (name := entry.strip()))


def _each(check: Callable[[str], str]) -> AfterValidator:
    return AfterValidator(lambda names: tuple(check(name.lower()) for name in names))


def _auto_or_at_most(maximum: int) -> WrapValidator:
    """Return a validator with one message, because a union would report an error for each type."""

    def check(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        with suppress(ValidationError):
            result = validate(value)
            if result == "auto" or 1 <= result <= maximum:
                return result
        raise ValueError(f"expected auto or an integer from 1 to {maximum}, got {value!r}")

    return WrapValidator(check)


Auto = Literal["auto"]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]  # separated by commas


class Settings(BaseSettings):
    """Settings of the service; SETTINGS.md describes each.

    Raises `pydantic.ValidationError`, which names each invalid field.
    """

    model_config = SettingsConfigDict(
        env_prefix="RSE_", extra="ignore", frozen=True, hide_input_in_errors=True
    )

    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8000, ge=1, le=65535)
    model: str = Field(default="live", min_length=1)
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    keys_file: str = ""
    keys: SecretStr = SecretStr("")
    secret: SecretStr = SecretStr("")
    allow_open: bool = False
    allowed_hosts: Annotated[Names, _each(_host)] = ()
    allowed_origins: Annotated[Names, _each(_origin)] = ()
    trusted_proxies: Annotated[Names, AfterValidator(_proxies)] = ()
    max_sessions: Annotated[Auto | int, _auto_or_at_most(100_000)] = "auto"
    max_sessions_per_client: Annotated[Auto | int, _auto_or_at_most(100_000)] = "auto"
    max_session_s: float = Field(default=4 * 3600.0, ge=1, le=48 * 3600)
    idle_timeout_s: float = Field(default=30.0, ge=0.1, le=3600)
    drain_timeout_s: float = Field(default=20.0, ge=0.1, le=3600)
    max_uploads: int = Field(default=4, ge=1, le=10_000)
    max_uploads_per_client: Annotated[Auto | int, _auto_or_at_most(10_000)] = "auto"
    max_upload_bytes: int = Field(default=512 * 1024 * 1024, ge=1024, le=64 * 1024**3)
    max_upload_s: float = Field(default=2 * 3600.0, ge=1, le=48 * 3600)
    workers: Annotated[Auto | int, _auto_or_at_most(256)] = "auto"
    hang_timeout_s: float = Field(default=60.0, ge=0.5, le=3600)
    overload_lag_s: float = Field(default=1.5, ge=0.1, le=3600)
    log_format: Literal["text", "json"] = "text"

    @model_validator(mode="after")
    def _keys_if_reachable(self) -> Self:
        has_keys = self.keys_file or self.keys.get_secret_value()
        if not (is_loopback(self.host) or has_keys or self.allow_open):
            raise ValueError(
                f"no API keys, and other machines can reach host {self.host}: set "
                "RSE_KEYS_FILE=keys after `rse-transcribe keys new NAME >> keys`, or "
                "RSE_ALLOW_OPEN=1 to serve everyone"
            )
        return self


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """Return the variables `RSE_...` that neither the service nor its clients read. They are not
    errors, because Kubernetes sets variables that are named after its Services."""
    expected = {f"RSE_{name.upper()}" for name in Settings.model_fields} | {KEY_VARIABLE}
    names = (name for name in environment if name.upper().startswith("RSE_"))
    return sorted(name for name in names if name.upper() not in expected)
