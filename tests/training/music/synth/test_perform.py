"""Tests of score pieces, their performance and their instruments."""

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.conftest import melody
from training.music.notes import merged, notes_of, with_pedal
from training.music.synth.bank import HELD_OUT, Bank, load_bank
from training.music.synth.config import SynthConfig
from training.music.synth.perform import assign_instruments, orchestrate, perform
from training.music.synth.pianos import PEDAL_LONGEST_S
from training.music.synth.scores import (
    PITCH_HIGH,
    PITCH_LOW,
    TRANSCRIBED,
    Piece,
    load_pieces,
    random_notes,
)


@pytest.fixture(scope="module")
def pieces(synth_config: SynthConfig) -> dict[str, Piece]:
    loaded = load_pieces(synth_config.root, "train")
    return {piece.ensemble: piece for piece in loaded}


@pytest.mark.parametrize("ensemble", ["solo piano", "solo violin", "string quartet"])
@pytest.mark.parametrize("seed", range(2))
def test_a_performance_has_plausible_notes(
    pieces: dict[str, Piece], ensemble: str, seed: int
) -> None:
    piece = pieces[ensemble]
    notes, pedal = perform(piece, 5.0, 8.0, np.random.default_rng(seed))
    per_second = 4 * len(piece.programs)
    max_ratio = 3.0 if ensemble == "solo piano" else 1.5  # Pianos add octaves and repeated notes.
    assert 0.6 * 7 * per_second < len(notes) < max_ratio * 8 * per_second
    assert notes.onset.min() >= 0
    assert notes.onset.max() < 8.0
    assert (notes.offset > notes.onset).all()
    assert notes.pitch.min() >= PITCH_LOW
    assert notes.pitch.max() <= PITCH_HIGH
    assert 1 <= notes.velocity.min() <= notes.velocity.max() <= 127
    assert (pedal[:, 1] > pedal[:, 0]).all()
    assert len(pedal) == (1 if ensemble == "solo piano" else 0)


@pytest.mark.parametrize("seed", range(3))
def test_training_never_uses_held_out_instruments(
    pieces: dict[str, Piece], bank: Bank, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    for piece in pieces.values():
        notes, pedal = perform(piece, 0.0, 5.0, rng)
        _, voices, _ = orchestrate(bank, piece, notes, pedal, rng)
        assert not {v.instrument.name for v in voices} & set(HELD_OUT)
        out, voices, _ = orchestrate(bank, piece, notes, pedal, rng, HELD_OUT)
        assert {v.instrument.name for v in voices} <= set(HELD_OUT)
        assert set(out.part.tolist()) <= set(range(len(voices)))


def test_the_pedal_extends_piano_notes_only(pieces: dict[str, Piece], bank: Bank) -> None:
    piece = pieces["solo piano"]
    pedalled = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        notes, pedal = perform(piece, 4.0, 10.0, rng)
        played, voices, presses = orchestrate(bank, piece, notes, pedal, rng)
        length = played.offset - played.onset
        if voices[0].instrument.family == "piano":
            pedalled += 1
            assert length.max() > 1.0
            assert (presses[:, 1] - presses[:, 0]).max() <= PEDAL_LONGEST_S
            longest = (notes.offset - notes.onset).max()
            assert length.max() <= longest + PEDAL_LONGEST_S + 0.01
        else:
            assert length.max() < 1.0
            assert not len(presses)
    assert pedalled > 6


def test_the_bank_is_cached(bank: Bank, synth_config: SynthConfig, tmp_path: Path) -> None:
    shutil.copy(synth_config.root / "bank_index.json", tmp_path)  # without the sounds
    cached = load_bank(tmp_path, synth_config.cache)
    np.testing.assert_array_equal(bank.samples, cached.samples)
    for name, entry in bank.instruments.items():
        np.testing.assert_array_equal(entry.audible, cached.instruments[name].audible)


def test_programs_determine_instruments_unless_reorchestrated(
    bank: Bank, pieces: dict[str, Piece], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.music.synth.perform.OTHERS_PIANO", 0.0)
    monkeypatch.setattr("training.music.synth.perform.REORCHESTRATED", 0.0)
    piece, usable = pieces["string quartet"], list(bank.instruments.values())
    assigned = assign_instruments(piece, piece.notes, usable, np.random.default_rng(3))
    assert [entry.class_name for entry in assigned] == ["violin", "cello"]


def test_pieces_equal_their_midi_files(pieces: dict[str, Piece]) -> None:
    quartet = pieces["string quartet"]
    assert quartet.programs == (40, 42)
    assert not quartet.expressive
    upper = quartet.notes.where(quartet.notes.part == 0)
    expected = np.array(melody(40, 60, 84, 3))
    np.testing.assert_allclose(upper.onset, expected[:, 0], atol=1e-3)
    np.testing.assert_allclose(upper.offset, expected[:, 1], atol=1e-3)
    np.testing.assert_array_equal(upper.pitch, expected[:, 2])
    assert (np.diff(quartet.notes.onset) >= 0).all()
    np.testing.assert_allclose(pieces["solo piano"].pedal, [[1, 2], [3, 39]], atol=2e-3)


@given(
    st.lists(
        st.tuples(st.floats(0, 50), st.floats(0.01, 30)).map(lambda x: (x[0], x[0] + x[1])),
        max_size=8,
    ),
    st.lists(st.tuples(st.floats(0, 60), st.floats(0.01, 5)), min_size=1, max_size=8),
)
def test_the_pedal_never_shortens_a_note(
    presses: list[tuple[float, float]], notes: list[tuple[float, float]]
) -> None:
    plain = notes_of([t for t, _ in notes], [t + d for t, d in notes], [60] * len(notes))
    pedal = merged(np.array(presses).reshape(-1, 2))
    held = with_pedal(plain, pedal)
    assert (held.offset >= plain.offset).all()
    for before, after in zip(plain.offset, held.offset, strict=True):
        down = [r for p, r in pedal if p <= before < r]
        assert np.isclose(after, down[0] if down else before)


def test_additional_bundles_are_read(synth_config: SynthConfig, tmp_path: Path) -> None:
    index = json.loads((synth_config.root / "midi_index.json").read_text())
    shutil.copy(synth_config.root / "midi_index.json", tmp_path)
    shutil.copy(synth_config.root / "midi_open.zip", tmp_path)
    index["pieces"] = index["pieces"][:2]
    index["pieces"][0]["source"] = f"{TRANSCRIBED} (somewhere)"
    (tmp_path / "midi_perf_index.json").write_text(json.dumps(index))
    shutil.copy(synth_config.root / "midi_open.zip", tmp_path / "midi_perf.zip")
    pieces = load_pieces(tmp_path, "train")
    assert len(pieces) == 4  # without the piece that another system transcribed
    assert pieces[-1].ensemble == index["pieces"][1]["ensemble"]
    assert pieces[-1].collection == "open"


@pytest.mark.parametrize("damage", ["truncated", "missing", "corrupt"])
def test_damaged_bundles_are_rejected(
    synth_config: SynthConfig, tmp_path: Path, damage: str
) -> None:
    shutil.copy(synth_config.root / "midi_index.json", tmp_path)
    path = tmp_path / "midi_open.zip"
    if damage == "truncated":
        path.write_bytes((synth_config.root / path.name).read_bytes()[:1000])
    else:
        with zipfile.ZipFile(path, "w") as bundle:
            if damage == "corrupt":
                bundle.writestr("open/train-solo_piano.mid", b"MThd")
    with pytest.raises(ValueError, match=f"cannot read {path}"):
        load_pieces(tmp_path, "train")


def test_piano_performances_add_octaves_and_repeated_notes(pieces: dict[str, Piece]) -> None:
    piece = pieces["solo piano"]
    lowest, repeats = [], []
    for seed in range(40):
        notes, _ = perform(piece, 0.0, 10.0, np.random.default_rng(seed))
        lowest.append(int(notes.pitch.min(initial=127)))
        gaps = [np.diff(notes.onset[notes.pitch == pitch]) for pitch in np.unique(notes.pitch)]
        repeats.append(int((np.concatenate(gaps) < 0.26).sum()))
    lowest_written = int(piece.notes.pitch.min())
    assert 1 <= sum(pitch < lowest_written - 5 for pitch in lowest) <= 20
    assert 2 <= sum(count > 2 for count in repeats) <= 25


def test_the_shortest_excerpts_can_have_random_notes() -> None:
    for seed in range(40):
        notes = random_notes(0.8, PITCH_LOW, PITCH_HIGH, np.random.default_rng(seed))
        assert (notes.onset < 0.8).all()
