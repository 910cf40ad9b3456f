"""What a machine carries is measured once for each machine and model."""

import logging
from pathlib import Path
from typing import Any

import pytest

from model.config import HOP, ModelConfig
from service.ops import capacity as module
from service.ops.capacity import ALONE_WORKER, LOAD, Capacity, capacity
from service.protocol.options import Mode, StreamOptions
from tests.service.apps import serving


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TRIAL_S", 0.05)


class FakePool:
    """Workers whose trials have these results."""

    device, processor, workers = "cpu", "AVX2", 2
    config, card = ModelConfig(name="fake", sample_rate=100 * HOP), dict[str, Any]()

    def __init__(self, speeds: list[float]) -> None:
        self._speeds = speeds

    async def measure(self, seconds: float) -> float:
        return self._speeds.pop(0)


def test_sessions_take_a_part_of_what_the_machine_computes() -> None:
    capacity = Capacity(windows_per_s=1000.0, sample_rate_hz=100 * HOP)
    assert capacity.admitted_per_s == LOAD * 1000
    for options in (StreamOptions(block_frames=1), StreamOptions(block_frames=8)):
        asked = capacity.asked_per_s(options)
        count = capacity.sessions(options)
        assert count * asked <= capacity.admitted_per_s < (count + 1) * asked


def test_an_operator_may_choose_the_part_and_one_default_session_is_always_carried() -> None:
    assert Capacity(1000.0, 100 * HOP, load=0.9).admitted_per_s == 900
    slowest = Capacity(windows_per_s=0.1, sample_rate_hz=100 * HOP)
    assert slowest.sessions(StreamOptions()) == 1


@pytest.mark.parametrize(("windows_per_s", "sessions"), [(100.0, 1), (75.0, 0)])
def test_one_session_in_anytime_mode_may_have_the_machine_to_itself(
    windows_per_s: float, sessions: int
) -> None:
    capacity = Capacity(windows_per_s, sample_rate_hz=100 * HOP)
    assert capacity.sessions_by_kind["anytime"] == sessions
    assert capacity.admitted_per_s < 54  # what it asks for: no others beside it


def test_no_session_is_larger_than_a_worker() -> None:
    """Four workers together compute what one of them alone cannot."""
    capacity = Capacity(windows_per_s=140.0, sample_rate_hz=100 * HOP, alone=ALONE_WORKER / 4)
    assert capacity.admitted_per_s > capacity.asked_per_s(StreamOptions(mode=Mode.ANYTIME))
    assert capacity.sessions_by_kind["anytime"] == 0
    assert capacity.sessions_by_kind["block_frames=8"] == 3


async def test_a_figure_is_measured_again_if_a_trial_contradicts_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = tmp_path / "new" / "capacity.json"
    speeds = [2.0, 3.0, 1.0]  # seconds of audio per second, of the trials to come

    pool = FakePool(speeds)

    async def measured() -> float:
        found = (await capacity(pool, cache)).windows_per_s  # type: ignore[arg-type]
        assert not speeds
        return found

    first = await measured()
    for speed in (4.0, 2.5):
        speeds[:] = [speed]
        assert await measured() == first
    speeds[:] = [0.1, 2.9, 0.2]  # held up for a moment
    assert await measured() == first
    assert not caplog.records
    speeds[:] = [0.1, 1.0, 0.2]  # slower now: admitted by, not kept
    assert await measured() == pytest.approx(first / 3)
    assert "is the machine busy?" in caplog.text
    speeds[:] = [3.0]
    assert await measured() == first
    speeds[:] = [5.0, 6.0, 4.0]
    assert await measured() == pytest.approx(2 * first)
    core = module._first_core()
    monkeypatch.setattr(module, "_first_core", lambda: core | {"model": "another"})
    speeds[:] = [1.0, 1.5, 1.0]
    assert await measured() == pytest.approx(first / 2)


async def test_a_folder_that_cannot_be_written_to_is_done_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.INFO):
        pool: Any = FakePool([90.0, 91.0, 89.0])
        found = await capacity(pool, tmp_path / "file" / "capacity.json")
    assert "cannot cache" in caplog.text
    assert f"of {found.windows_per_s:.0f} windows per second (measured)" in caplog.text


def test_the_service_admits_as_many_as_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with serving(max_sessions="auto") as (client, _):
        ready = client.get("/readyz").json()
        info = client.get("/info").json()
        metrics = client.get("/metrics").text
    assert info["settings"]["max_sessions"] == "auto"
    assert info["capacity"]["windows_per_s"] > 0
    assert info["max_sessions"] == ready["max_sessions"] >= 1
    assert info["max_sessions"] == info["capacity"]["sessions"]["block_frames=4"]
    assert info["capacity"]["sessions_windows_per_s"] == 0
    assert f"rse_sessions_limit {info['max_sessions']:.1f}" in metrics
    assert "rse_capacity_windows_per_second 0.0" not in metrics
