"""Tuning and bends, with the shipped weights."""

import io
import json
from pathlib import Path

import mido
import numpy as np
import pytest
from numpy.typing import NDArray

import rse_transcribe

RATE_HZ = 11_025
MELODY = (60, 64, 67, 72, 69, 65, 62, 71, 67, 64)
SURE = set(MELODY[5:9])  # tones that the network hears though they are so plain
VIBRATO_HZ, DEPTH_CENTS = 5.0, 25.0


@pytest.fixture(scope="module")
def transcriber() -> rse_transcribe.Transcriber:
    return rse_transcribe.Transcriber(model="live", device="cpu")


def sounded(cents: NDArray[np.float64], pitch: int) -> NDArray[np.float64]:
    """A tone with overtones, this many cents above the pitch at each sample."""
    phase = 2 * np.pi * np.cumsum(440 * 2 ** ((pitch - 69 + cents / 100) / 12)) / RATE_HZ
    return np.sum([np.sin(h * phase) / h for h in range(1, 6)], axis=0)


def plucked(cents: float) -> NDArray[np.float32]:
    time_s = np.arange(RATE_HZ) / RATE_HZ
    tones = [0.2 * np.exp(-4 * time_s) * sounded(cents + 0 * time_s, p) for p in MELODY]
    return np.concatenate([np.zeros(1000), *(tone[: RATE_HZ // 2] for tone in tones)]).astype("f4")


@pytest.mark.parametrize(
    ("cents", "tuning_hz"), [(45, None), (-45, None), (1200 * np.log2(415 / 440), 415)]
)
def test_a_melody_is_heard_in_any_tuning(
    transcriber: rse_transcribe.Transcriber, cents: float, tuning_hz: float | None
) -> None:
    notes = transcriber.transcribe(plucked(cents), RATE_HZ, tuning_hz=tuning_hz).notes
    assert SURE <= {note.pitch for note in notes}
    found_s = 1.0  # within which the tuning is found
    assert {note.pitch for note in notes if note.onset_s > found_s or tuning_hz} <= set(MELODY)


def test_vibrato_is_in_every_form(transcriber: rse_transcribe.Transcriber, tmp_path: Path) -> None:
    time_s = np.arange(3 * RATE_HZ) / RATE_HZ
    wanted = DEPTH_CENTS * np.sin(2 * np.pi * VIBRATO_HZ * time_s)
    samples = 0.2 * np.minimum(1, 20 * time_s) * sounded(wanted, 64)
    heard = transcriber.transcribe(samples.astype(np.float32), RATE_HZ, bends=True)
    curve: dict[int, float] = {}
    for note in heard.performance.notes:
        if note.pitch == 64:
            curve |= enumerate(note.bends or (), note.onset_frame)
    assert len(curve) > 100
    frames = np.array([frame for frame in curve if 40 <= frame < 240])
    errors = np.array([curve[f] for f in frames]) - wanted[128 * frames]
    assert (np.abs(errors) < 8).mean() > 0.8
    midi = mido.MidiFile(file=io.BytesIO(heard.midi()))
    assert sum(m.type == "pitchwheel" for track in midi.tracks for m in track) > 50
    heard.save(tmp_path / "sung.json")
    notes = json.loads((tmp_path / "sung.json").read_text())["notes"]
    assert any(len(note["bends"]) > 30 for note in notes)
    plain = transcriber.transcribe(samples.astype(np.float32), RATE_HZ)
    assert all(note.bends is None for note in plain.notes)
