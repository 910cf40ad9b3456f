"""Fixtures of the training tests: a small bank of notes, a small corpus, tones and weights."""

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pretty_midi
import pytest
import soundfile
import torch
from numpy.typing import NDArray

from model.config import SAMPLE_RATE
from model.storage import read_tensors, save_weights
from model.transcriber import TranscriptionModel
from tests.fakes import FAKE_PITCHES, FAKE_RATE_HZ, play, tone_hz
from tests.networks import TINY
from training.music.synth.config import SynthConfig

GAP_SAMPLES = 256
PRE_S = 0.004  # silence before the attack of each recorded note
INSTRUMENTS: tuple[tuple[str, str, str, str, range], ...] = (
    ("piano_one", "piano", "piano", "decaying", range(24, 109, 6)),
    ("piano_two", "piano", "piano", "decaying", range(21, 109, 6)),
    ("piano_iowa", "piano", "piano", "decaying", range(22, 109, 6)),
    ("violin_one", "strings", "violin", "sustained", range(55, 100, 5)),
    ("violin_vso2", "strings", "violin", "sustained", range(55, 100, 5)),
    ("cello_one", "strings", "cello", "sustained", range(36, 80, 5)),
    ("clarinet_one", "winds", "clarinet", "sustained", range(50, 95, 5)),
    ("clarinet_vsco2", "winds", "clarinet", "sustained", range(50, 95, 5)),
)
CENTS = 20  # deviation of every recorded note


def recorded_note(midi: float, sustained: bool, seconds: float) -> NDArray[np.float32]:
    """Return a note with 4 partials and a peak of 0.9, after PRE_S of silence."""
    time_s = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    sound = np.zeros_like(time_s)
    for partial in range(1, 5):
        if partial * tone_hz(midi) < 0.45 * SAMPLE_RATE:
            sound += np.cos(2 * np.pi * partial * tone_hz(midi) * time_s) / partial**2
    if not sustained:
        sound *= np.exp(-time_s / 0.35)
    sound *= np.clip(time_s / 0.001, 0, 1)
    silence = np.zeros(round(PRE_S * SAMPLE_RATE))
    return np.concatenate([silence, 0.9 * sound / np.abs(sound).max()]).astype(np.float32)


def write_bank(root: Path) -> None:
    (root / "bank").mkdir()
    instruments: dict[str, Any] = {}
    for name, family, instrument, kind, pitches in INSTRUMENTS:
        notes, chunks, position = [], [], 0
        layers = ((0, 40), (1, 100)) if family == "piano" else ((0, 90),)
        for layer, velocity in layers:
            for midi in pitches:
                sound = recorded_note(midi + CENTS / 100, kind == "sustained", 2.0)
                loop = None
                if kind == "sustained":
                    loop = [int(0.45 * len(sound)), int(0.88 * len(sound))]
                notes.append(
                    {
                        "midi": midi,
                        "layer": layer,
                        "velocity": velocity,
                        "start": position,
                        "length": len(sound),
                        "cents": CENTS,
                        "orig_peak_db": -10.0 + layer,
                        "onset_ms": 1000 * PRE_S,
                        "loop": loop,
                    }
                )
                chunks += [sound, np.zeros(GAP_SAMPLES, np.float32)]
                position += len(sound) + GAP_SAMPLES
        file = f"bank/{name}.flac"
        soundfile.write(root / file, np.concatenate(chunks), SAMPLE_RATE)
        instruments[name] = {
            "family": family,
            "instrument": instrument,
            "kind": kind,
            "licence": "MIT",
            "attribution": f"The players of the {instrument}",
            "file": file,
            "notes": notes,
        }
    index = {"sample_rate": SAMPLE_RATE, "instruments": instruments}
    (root / "bank_index.json").write_text(json.dumps(index))


Event = tuple[float, float, int, int]  # onset_s, offset_s, pitch, velocity


def write_midi(
    path: Path,
    parts: Sequence[tuple[int, Sequence[Event]]],
    pedal: Sequence[tuple[float, float]] = (),
) -> None:
    """Write a MIDI file with ticks of 1 ms. The first part contains the pedal."""
    file = pretty_midi.PrettyMIDI(resolution=500)
    for program, events in parts:
        part = pretty_midi.Instrument(program)
        part.notes = [
            pretty_midi.Note(velocity, pitch, onset, offset)
            for onset, offset, pitch, velocity in events
        ]
        file.instruments.append(part)
    for press, release in pedal:
        for time, value in ((press, 127), (release, 0)):
            file.instruments[0].control_changes.append(pretty_midi.ControlChange(64, value, time))
    file.write(str(path))


def melody(seconds: float, low: int, high: int, seed: int) -> list[Event]:
    rng = np.random.default_rng(seed)
    onsets = np.arange(0, seconds, 0.25)
    return [(float(t), float(t) + 0.25, int(rng.integers(low, high)), 70) for t in onsets]


@pytest.fixture(scope="session")
def synth_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("synth")
    write_bank(root)
    pieces = []
    with zipfile.ZipFile(root / "midi_open.zip", "w") as bundle:
        for split in ("train", "validation"):
            for ensemble, parts, expressive in (
                ("solo piano", [(0, melody(40, 40, 90, 1))], True),
                ("solo violin", [(40, melody(40, 56, 90, 2))], False),
                (
                    "string quartet",
                    [(40, melody(40, 60, 84, 3)), (42, melody(40, 38, 60, 4))],
                    False,
                ),
            ):
                name = f"open/{split}-{ensemble.replace(' ', '_')}.mid"
                pedal = [(1.0, 2.0), (3.0, 39.0)] if expressive else []
                write_midi(root / "piece.mid", parts, pedal)
                bundle.write(root / "piece.mid", name)
                pieces.append(
                    {
                        "id": f"{split}-{ensemble}",
                        "file": name,
                        "source": "synthetic",
                        "licence": "MIT",
                        "ensemble": ensemble,
                        "expressive": expressive,
                        "split": split,
                    }
                )
    (root / "midi_index.json").write_text(json.dumps({"pieces": pieces}))
    return root


@pytest.fixture(scope="session")
def synth_config(synth_root: Path, tmp_path_factory: pytest.TempPathFactory) -> SynthConfig:
    return SynthConfig(
        root=synth_root, cache=tmp_path_factory.mktemp("cache"), excerpt_s=5.0, pool_excerpts=3
    )


TONES = [(FAKE_PITCHES[i % 4], 0.3 + 0.4 * i, 0.6 + 0.4 * i) for i in range(6)]
"""Notes of the recording in ``tones``: (pitch, onset_s, offset_s)."""


@pytest.fixture
def tones(tmp_path: Path) -> Path:
    """Folder with a recording of pure tones, 3 s long, and its labels."""
    folder = tmp_path / "tones"
    folder.mkdir()
    soundfile.write(folder / "tones.wav", play(TONES, 3.0, FAKE_RATE_HZ), FAKE_RATE_HZ)
    rows = [f"{onset}\t{offset}\t{pitch}\t64" for pitch, onset, offset in TONES]
    (folder / "tones.tsv").write_text("\n".join(rows))
    return folder


def same_weights(*runs: Path) -> bool:
    """Return True if the last weights of two runs are identical."""
    first, second = (read_tensors(run / "last.safetensors") for run in runs)
    return first.keys() == second.keys() and all(
        torch.equal(tensor, second[name]) for name, tensor in first.items()
    )


@pytest.fixture(scope="session")
def tiny_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File of a small untrained transcription network."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.safetensors"
    torch.manual_seed(0)
    training = {"steps": 7, "hours": 0.5, "loop": {"learning_rate": 0.1}}
    data = {"batch_size": 3, "synth": {"real_probability": 0.25}}
    sources = {
        "sounds": [{"attribution": "A flautist", "licence": "CC0", "instruments": ["flute"]}]
    }
    card = {"name": "tiny", "training": training, "data": data, "sources": sources}
    save_weights(TranscriptionModel(TINY), {**card, "config": TINY.to_json()}, path)
    return path
