"""docker/CAPACITY.md agrees with itself, with the models, and with its program."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from docker.capacity import MARK, SHEET, Machine, capacity, inputs, machines, renewed
from model.config import CONFIGS, HOP, LIVE, WINDOW
from model.fast.network import fast_network
from model.transcriber import Transcriber
from service.engine.windows import WindowSchedule
from service.session.options import StreamOptions
from tests.benchmarks.streams import STREAM

TEXT = SHEET.read_text(encoding="utf-8")
GIVEN = TEXT.partition(MARK)[0]
LABELS = {"measured", "computed", "stated", "assumed"}
XEON = Machine("one", vcpus=10, gpus=0, tflops=0, usd_an_hour=1)
GPU = Machine("other", vcpus=1000, gpus=1, tflops=100, usd_an_hour=1)


def test_what_is_derived_follows_from_the_inputs() -> None:
    assert renewed(TEXT) == TEXT, "run `python docker/capacity.py`"


def test_every_input_has_a_label() -> None:
    rows = re.findall(r"^\| [`\w].*? \| [\d.]+ \|.*", GIVEN, re.MULTILINE)
    assert len(rows) == len(inputs(GIVEN)) + len(machines(GIVEN))
    for row in rows:
        assert LABELS & set(row.strip("| ").split(" | ")), row
    assert all("(extrapolated)" in line for line in re.findall("^## .*", TEXT.partition(MARK)[2]))


def test_a_changed_input_changes_what_is_derived() -> None:
    changed, changes = re.subn(r"\| `streams` \| \d+ \|", "| `streams` | 32 |", TEXT)
    assert changes == 1
    assert "16 streams a core" in renewed(changed)
    with pytest.raises(ValueError, match="lost the line"):
        renewed(TEXT.replace(MARK, ""))


def test_capacity_by_hand() -> None:
    given = {
        "streams": 16.0,
        "cores": 2.0,
        "host_core_ms": 20.0,
        "window_gflop": 1.0,
        "windows_a_second": 10.0,
        "fraction_of_peak": 0.01,
        "vcpu_yield": 0.5,
        "target_load": 0.5,
    }
    cpu = capacity(XEON, given)  # 5 cores of 8 streams
    assert (cpu.by_cores, cpu.by_gpus, cpu.streams, cpu.processes) == (40, None, 20, 3)
    gpu = capacity(GPU, given)  # 1 of 100 TFLOPS, 10 GFLOP a second and stream; 500 cores of 50
    assert (gpu.by_cores, gpu.by_gpus) == pytest.approx((25_000, 100))
    assert (gpu.streams, gpu.processes, gpu.first) == (50, 4, "GPU")
    few = capacity(replace(GPU, vcpus=2), given)
    assert (few.streams, few.first) == (25, "cores: beside the model")


def test_windows_are_those_of_the_model_and_the_benchmark() -> None:
    given = inputs(GIVEN)
    rate = LIVE.sample_rate / HOP / (STREAM.block_frames or 0)
    assert given["windows_a_second"] == pytest.approx(rate, rel=1e-3)
    pcm_kbit = STREAM.sample_rate * 8 * STREAM.frame_bytes / 1000
    assert given["stream_kbit"] == pytest.approx(1.04 * pcm_kbit, rel=5e-3)


@pytest.mark.parametrize("name", ["live", "accurate"])
def test_arithmetic_of_a_window(name: str) -> None:
    options = StreamOptions(
        lookahead_ms=STREAM.lookahead_ms or 0, block_frames=STREAM.block_frames or 0
    )
    positions = WindowSchedule.of(options, CONFIGS[name].sample_rate).positions
    network = fast_network(Transcriber(CONFIGS[name]).eval())
    assert network is not None
    with FlopCounterMode(display=False) as counter:
        network.predict(torch.zeros(1, WINDOW), positions)
    gflop = counter.get_total_flops() / 1e9
    (said,) = re.findall(r"model `accurate`: ([\d.]+)", TEXT)
    stated = inputs(GIVEN)["window_gflop"] if name == "live" else float(said)
    assert stated == pytest.approx(gflop, rel=1e-3)
