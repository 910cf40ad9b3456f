"""Tests of the analysis of keys and of the user's beat hints."""

from argparse import ArgumentParser
from collections.abc import Sequence

import numpy as np
import pytest

from service.score.analysis import add_beat_options, analyse, beat_hints_from
from service.score.beats import BeatHints
from service.score.keys import Key, key_of
from tests.service.score.music import as_notes, tune


def melody(pitches: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return consecutive notes of half a second."""
    return np.array([(t / 2, t / 2 + 0.5, pitch, 70) for t, pitch in enumerate(pitches)])


@pytest.mark.parametrize("tonic", range(12))
def test_short_piece_has_the_key_of_its_start(tonic: int) -> None:
    opening = np.array([0, 3, 7, 12, 11, 8, 7, 5, 3, 2, 0, 7]) + 48 + tonic
    dominant = np.array([7, 10, 14, 9, 6, 7, 14, 12, 10, 9, 7, 6]) + 48 + tonic
    key = key_of(melody([*np.tile(opening, 2), *np.tile(dominant, 3)]))
    assert key.minor
    assert (key.fifths * 7 + 9) % 12 == tonic


def test_silence_is_in_c_major_without_beats() -> None:
    analysis = analyse([])
    assert analysis.key == Key(0, minor=False)
    assert not analysis.steady
    assert analyse([], BeatHints(bpm=90)).tempo.beats_s[1] == pytest.approx(60 / 90)


def test_first_downbeat_is_the_nearest_beat() -> None:
    notes = as_notes(tune(np.arange(20) * 0.5, 4))
    beats = analyse(notes, BeatHints(first_downbeat_s=500)).beats
    assert beats.bar[-1] == 0
    assert not analyse([], BeatHints(first_downbeat_s=1)).steady


def test_few_notes_have_the_tempo_and_bars_of_the_hints() -> None:
    notes = as_notes(melody([60, 62, 64, 65]) + [0.3, 0.3, 0, 0])
    hints = BeatHints(bpm=60, beats_per_bar=4, subdivision=3, first_downbeat_s=3.3)
    analysis = analyse(notes, hints)
    assert analysis.beats.time_s[analysis.beats.bar == 0] == pytest.approx([3.3])
    assert analysis.beats.time_s[0] == pytest.approx(0.3)
    assert analysis.beats.signature(4) == (12, 8)
    assert analysis.tempo.quarters == 1.5


@pytest.mark.parametrize(
    ("text", "metre"),
    [("5", (5, None)), ("7/4", (7, 2)), ("12/8", (4, 3)), ("6/8", (2, 3)), ("4", (4, None))],
)
def test_metre_option_accepts_beats_or_a_signature(
    text: str, metre: tuple[int, int | None]
) -> None:
    parser = ArgumentParser()
    add_beat_options(parser)
    hints = beat_hints_from(parser.parse_args(["--beats-per-bar", text]))
    assert (hints.beats_per_bar, hints.subdivision) == metre


@pytest.mark.parametrize("text", ["0", "1", "13", "7/8", "4/3", "x", "-3", ""])
def test_invalid_metres_are_rejected(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = ArgumentParser()
    add_beat_options(parser)
    with pytest.raises(SystemExit):
        parser.parse_args([f"--beats-per-bar={text}"])
    assert "such as 5, 7/4 or 12/8" in capsys.readouterr().err
