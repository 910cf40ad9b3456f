"""The engine in use: loading, ready, hung or being replaced."""

from __future__ import annotations

from service.engine.interface import EngineLike

NOT_RUNNING = "the model is not loaded yet, or has failed"


class EngineSlot:
    """Holds the engine of an application.

    Attributes:
        engine: None until the model is loaded.
        device: where it runs; `auto` until the model is loaded.
        load_error: why there will be no engine.
        replacing: the engine hung, and a new one is being made.
    """

    def __init__(self, device: str, hang_timeout_s: float) -> None:
        """hang_timeout_s: time without a heartbeat after which the engine's worker has hung."""
        self.engine: EngineLike | None = None
        self.device = device
        self.load_error: str | None = None
        self.replacing = False
        self.hang_timeout_s = hang_timeout_s

    @property
    def hangs(self) -> bool:
        """Whether the engine's worker shows no sign of life, or is being replaced for that."""
        return self.replacing or self.heartbeat_age_s > self.hang_timeout_s

    @property
    def heartbeat_age_s(self) -> float:
        """Seconds since the last sign of life of the engine's worker."""
        return self.engine.heartbeat_age_s if self.engine is not None else 0.0

    @property
    def running(self) -> bool:
        """Whether the engine is loaded and its worker alive."""
        return self.engine is not None and self.engine.ready

    def loaded(self) -> EngineLike:
        """The engine, for admitted clients: none are admitted before it is loaded."""
        assert self.engine is not None
        return self.engine
