"""Collects the Prometheus metrics of `GET /metrics`."""

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from service.protocol.errors import ErrorCode
from service.stream.windows import BatchTiming

# Buckets around 46 ms, the duration of a block of four frames of the shipped model.
STEP_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.046, 0.07, 0.1, 0.2, 0.5, 1, 5, 30)
LATENESS_BUCKETS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


class Metrics:
    """Metrics of one application. Counters may be increased from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        count = partial(Counter, namespace="rse", registry=self.registry)
        spread = partial(Histogram, namespace="rse", registry=self.registry)
        self.opened = count("sessions_opened", "Live sessions opened")
        self.closed = count("sessions_closed", "Live sessions ended, by reason", ["reason"])
        self.refused = count("refused", "Requests and sessions rejected, by code", ["code"])
        self.uploads_ended = count("uploads_ended", "Uploads ended, by outcome", ["outcome"])
        audio_help = "Audio received live, or transcribed from files, by way (live or file)"
        self.audio_s = count("audio_seconds", audio_help, ["way"])
        self.notes = count("notes", "Notes sent in live sessions")
        self.worker_restarts = count("worker_restarts", "Workers that exited and were replaced")
        self.batch_failures = count("batch_failures", "Batches in which the model failed", ["way"])
        self.event_lateness_s = spread(
            "event_lateness_seconds",
            "Time by which an event exceeded its guaranteed delay",
            buckets=LATENESS_BUCKETS_S,
        )
        self.behind_s = spread(
            "behind_seconds",
            "Audio received but not yet transcribed, observed at each output of a session",
            buckets=LATENESS_BUCKETS_S,
        )
        self.step_s = spread(
            "step_seconds", "Computing time of a batch", ["way"], buckets=STEP_BUCKETS_S
        )
        for metric in (self.audio_s, self.batch_failures, self.step_s):
            for way in ("live", "file"):
                metric.labels(way)  # start at 0, which rate() in Prometheus needs
        for code in ErrorCode:
            for metric in (self.refused, self.closed, self.uploads_ended):
                metric.labels(code)
        for reason in ("stop", "draining", "vanished", "cancelled"):
            self.closed.labels(reason)
        for outcome in ("done", "vanished"):
            self.uploads_ended.labels(outcome)

    def watch(self, name: str, meaning: str, value: Callable[[], float]) -> None:
        """Add a gauge that is evaluated on each scrape."""
        Gauge(name, meaning, namespace="rse", registry=self.registry).set_function(value)

    def on_batch(self, timing: BatchTiming) -> None:
        if timing.windows:
            self.step_s.labels(timing.way).observe(timing.model_s)
        else:
            self.batch_failures.labels(timing.way).inc()
