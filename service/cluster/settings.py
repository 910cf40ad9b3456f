"""Settings of the service on a cluster: `RSE_CLUSTER_<NAME>`, beside `service.settings`."""

from __future__ import annotations

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class ClusterSettings(BaseSettings):
    """How the replicas of a cluster deal with each other.

    Raises `pydantic.ValidationError`, naming each field at fault, when it is built.
    """

    model_config = SettingsConfigDict(
        env_prefix="RSE_CLUSTER_", extra="ignore", frozen=True, use_attribute_docstrings=True
    )

    live_timeout_s: float = Field(default=5.0, ge=0.01, le=600)
    """Seconds that a model replica has for a request of a live stream, and for its description;
    then another one is asked."""

    file_timeout_s: float = Field(default=120.0, ge=0.01, le=3600)
    """Seconds that a model replica has for a request of a recording, which waits for all live
    streams."""

    max_attempts: int = Field(default=10, ge=1, le=100)
    """Times that a request is sent before its session fails: replicas die, are full or have
    other weights."""

    retry_pause_s: float = Field(default=0.05, ge=0, le=10)
    """Seconds before the second attempt; before the third twice that, and so on."""

    heartbeat_s: float = Field(default=2.0, ge=0.01, le=60)
    """Seconds between two questions to the model whether it is there."""

    heartbeat_patience_s: float = Field(default=15.0, ge=0.1, le=600)
    """Seconds without any answer of the model after which no new session is taken."""

    drain_poll_s: float = Field(default=1.0, ge=0.05, le=60)
    """Seconds between two questions of an ingress replica to Serve whether it is to go down."""

    max_unread_bytes: int = Field(default=8 * 1024 * 1024, ge=64 * 1024, le=1024**3)
    """Bytes of a live stream that may wait in an ingress replica, as Serve does not hold back a
    client that sends too fast; beyond it the connection is closed, and may be resumed."""

    max_streams: int = Field(default=4096, ge=1, le=1_000_000)
    """Streams whose front-end a model replica keeps; beyond it the least recent is begun anew."""

    stream_idle_s: float = Field(default=10.0, ge=0.1, le=3600)
    """Seconds without a request after which a model replica forgets a stream's front-end."""

    @model_validator(mode="after")
    def _consistent(self) -> ClusterSettings:
        if self.heartbeat_patience_s <= self.heartbeat_s:
            raise ValueError("heartbeat_patience_s is not above heartbeat_s: no answer is in time")
        return self
