"""Instruments and the pedal on rendered passages."""

from model.config import HEADS, INSTRUMENTS
from service.protocol.options import StreamOptions
from tests.fakes import FakeTranscriber
from training.evaluation.instruments import evaluate_instruments
from training.music.synth.config import SynthConfig


def test_figures_of_solos_ensembles_and_pianos(synth_config: SynthConfig) -> None:
    lines: list[str] = []
    stream = StreamOptions(block_frames=16)
    figures = evaluate_instruments(
        FakeTranscriber(HEADS), stream, synth_config, 1, 3.0, show=lines.append
    )
    solo = figures["solo"]
    assert solo["notes"] == sum(sum(row.values()) for row in solo["confusion"].values())
    assert set(figures["classes"]) <= set(INSTRUMENTS)
    assert sum(line.startswith("piano") for line in lines) == 10
    # Of several classes only: a single one given would always be right.
    assert set(figures["ensemble"]) - set(solo) == {"given"}
    assert all(line.startswith("ensemble") == (", given " in line) for line in lines)
