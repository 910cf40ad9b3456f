import json
import shutil
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.training.conftest import melody
from training.music.notes import merged, notes_of, with_pedal
from training.music.synth.config import SynthConfig
from training.music.synth.scores import TRANSCRIBED, load_pieces


def test_a_piece_is_what_its_file_says(synth_config: SynthConfig) -> None:
    pieces = load_pieces(synth_config.root, "train")
    quartet = next(piece for piece in pieces if piece.ensemble == "string quartet")
    assert quartet.programs == (40, 42)
    assert not quartet.expressive
    upper = quartet.notes.where(quartet.notes.part == 0)
    want = np.array(melody(40, 60, 84, 3))
    np.testing.assert_allclose(upper.onset, want[:, 0], atol=1e-3)
    np.testing.assert_allclose(upper.offset, want[:, 1], atol=1e-3)
    np.testing.assert_array_equal(upper.pitch, want[:, 2])
    assert (np.diff(quartet.notes.onset) >= 0).all()
    piano = next(piece for piece in pieces if piece.ensemble == "solo piano")
    np.testing.assert_allclose(piano.pedal, [[1, 2], [3, 39]], atol=2e-3)


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


def test_further_bundles_are_read_where_they_lie(synth_config: SynthConfig, tmp_path: Path) -> None:
    index = json.loads((synth_config.root / "midi_index.json").read_text())
    shutil.copy(synth_config.root / "midi_index.json", tmp_path)
    shutil.copy(synth_config.root / "midi_open.zip", tmp_path)
    index["pieces"] = index["pieces"][:2]
    index["pieces"][0]["source"] = f"{TRANSCRIBED} (somewhere)"
    (tmp_path / "midi_perf_index.json").write_text(json.dumps(index))
    shutil.copy(synth_config.root / "midi_open.zip", tmp_path / "midi_perf.zip")
    pieces = load_pieces(tmp_path, "train")
    assert len(pieces) == 4  # what another system transcribed is left out
    assert pieces[-1].ensemble == index["pieces"][1]["ensemble"]
    assert pieces[-1].collection == "open"
