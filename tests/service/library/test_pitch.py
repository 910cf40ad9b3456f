"""Tests of tuning and pitch bends with the shipped weights."""

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
DETECTED = set(MELODY[5:9])  # the network detects only these, because the tones are synthetic
VIBRATO_HZ, DEPTH_CENTS = 5.0, 25.0


@pytest.fixture(scope="module")
def transcriber() -> rse_transcribe.Transcriber:
    return rse_transcribe.Transcriber(model="live", device="cpu")


def tone(cents: NDArray[np.float64], pitch: int) -> NDArray[np.float64]:
    """Return a tone with overtones. `cents` is its offset from the pitch at each sample."""
    phase = 2 * np.pi * np.cumsum(440 * 2 ** ((pitch - 69 + cents / 100) / 12)) / RATE_HZ
    return np.sum([np.sin(h * phase) / h for h in range(1, 6)], axis=0)


def plucked_melody(cents: float) -> NDArray[np.float32]:
    time_s = np.arange(RATE_HZ) / RATE_HZ
    tones = [0.2 * np.exp(-4 * time_s) * tone(cents + 0 * time_s, p) for p in MELODY]
    return np.concatenate([np.zeros(1000), *(tone[: RATE_HZ // 2] for tone in tones)]).astype("f4")


@pytest.mark.parametrize(
    ("cents", "tuning_hz"), [(45, None), (-45, None), (1200 * np.log2(415 / 440), 415)]
)
def test_melody_is_detected_in_any_tuning(
    transcriber: rse_transcribe.Transcriber, cents: float, tuning_hz: float | None
) -> None:
    notes = transcriber.transcribe(plucked_melody(cents), RATE_HZ, tuning_hz=tuning_hz).notes
    assert DETECTED <= {note.pitch for note in notes}
    settled_s = 1.0  # the tuning is estimated by then
    assert {note.pitch for note in notes if note.onset_s > settled_s or tuning_hz} <= set(MELODY)


def test_vibrato_is_in_all_formats(transcriber: rse_transcribe.Transcriber, tmp_path: Path) -> None:
    time_s = np.arange(3 * RATE_HZ) / RATE_HZ
    expected_cents = DEPTH_CENTS * np.sin(2 * np.pi * VIBRATO_HZ * time_s)
    samples = 0.2 * np.minimum(1, 20 * time_s) * tone(expected_cents, 64)
    result = transcriber.transcribe(samples.astype(np.float32), RATE_HZ, bends=True)
    curve: dict[int, float] = {}
    for note in result.performance.notes:
        if note.pitch == 64:
            curve |= enumerate(note.bends or (), note.onset_frame)
    assert len(curve) > 100
    frames = np.array([frame for frame in curve if 40 <= frame < 240])
    errors = np.array([curve[f] for f in frames]) - expected_cents[128 * frames]
    assert (np.abs(errors) < 8).mean() > 0.8
    midi = mido.MidiFile(file=io.BytesIO(result.midi()))
    assert sum(m.type == "pitchwheel" for track in midi.tracks for m in track) > 50
    result.save(tmp_path / "sung.json")
    notes = json.loads((tmp_path / "sung.json").read_text())["notes"]
    assert any(len(note["bends"]) > 30 for note in notes)
    plain = transcriber.transcribe(samples.astype(np.float32), RATE_HZ)
    assert all(note.bends is None for note in plain.notes)
