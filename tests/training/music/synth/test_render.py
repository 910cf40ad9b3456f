from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model.config import INSTRUMENTS, SAMPLE_RATE
from tests.training.music.synth.conftest import level_db
from training.music.notes import Notes, notes_of
from training.music.synth.bank import SILENCE_DB, Bank
from training.music.synth.lines import Line
from training.music.synth.render import FADED_DB, Rendered, Voice, render, shorten_repeats

NO_PEDAL = np.zeros((0, 3))


def notes(*events: tuple[float, float, int, float, int]) -> Notes:
    return notes_of(*np.array(events, float).reshape(-1, 5).T)


def play(
    bank: Bank,
    name: str,
    *events: tuple[float, float, int, float, int],
    seconds: float = 2.0,
    tuning: float = 0.0,
    **voice: Any,
) -> Rendered:
    voices = [Voice(bank.instruments[name], **{"detune_cents": 0.0, **voice})]
    rng = np.random.default_rng(0)
    return render(bank, notes(*events), voices, seconds, tuning, rng, NO_PEDAL)


def fundamental(audio: NDArray[np.float32]) -> float:
    """MIDI pitch of the strongest partial, which in these tones is the first."""
    spectrum = np.abs(np.fft.rfft(audio * np.hanning(len(audio)), 1 << 18))
    return float(69 + 12 * np.log2(spectrum.argmax() * SAMPLE_RATE / (1 << 18) / 440))


@pytest.mark.parametrize(
    ("name", "pitch"), [("piano_one", 61), ("violin_one", 77), ("clarinet_one", 57)]
)
def test_a_note_sounds_at_its_pitch(bank: Bank, name: str, pitch: int) -> None:
    audio = play(bank, name, (0.3, 1.5, pitch, 90, 0)).audio
    heard = fundamental(audio[int(0.4 * SAMPLE_RATE) : int(1.2 * SAMPLE_RATE)])
    assert heard == pytest.approx(pitch, abs=0.03)


@pytest.mark.parametrize("name", ["piano_one", "violin_one"])
@pytest.mark.parametrize("onset", [0.25, 0.61803])
def test_sound_begins_at_the_labelled_onset(bank: Bank, name: str, onset: float) -> None:
    rendered = play(bank, name, (onset, onset + 0.5, 67, 90, 0))
    envelope = np.abs(rendered.audio)
    first = np.argmax(envelope > 0.2 * envelope.max()) / SAMPLE_RATE
    assert rendered.notes.onset[0] == onset
    assert abs(first - onset) < 0.005


def test_a_decayed_note_ends_its_label_and_a_looped_one_lasts(bank: Bank) -> None:
    piano = play(bank, "piano_one", (0.0, 9.0, 60, 90, 0), seconds=10)
    end = piano.notes.offset[0]
    assert 1.5 < end < 2.2  # 1.8 s of audible sound, at up to 1.5 semitones of shift
    peak = np.abs(piano.audio).max()
    left = np.abs(piano.audio[int((end + 0.05) * SAMPLE_RATE) :]).max()
    assert left < 1.5 * peak * 10 ** (SILENCE_DB / 20)
    violin = play(bank, "violin_one", (0.0, 9.0, 60, 90, 0), seconds=10)
    assert violin.notes.offset[0] == 9.0
    early = level_db(violin.audio[SAMPLE_RATE : 2 * SAMPLE_RATE])
    late = level_db(violin.audio[int(7.5 * SAMPLE_RATE) : int(8.5 * SAMPLE_RATE)])
    assert late == pytest.approx(early, abs=2)


def test_a_blown_note_lasts_until_it_has_faded(bank: Bank) -> None:
    flute = replace(bank.instruments["violin_one"], number=INSTRUMENTS.index("flute"))
    held = notes((0.1, 2.0, 67, 90, 0))
    out = render(bank, held, [Voice(flute)], 3.0, 0.0, np.random.default_rng(0), NO_PEDAL)
    fade_s = FADED_DB / 20 * np.log(10) * Voice.release_s
    assert out.notes.offset[0] == pytest.approx(2.0 + fade_s)


def test_a_recording_may_end_near_a_slur(bank: Bank) -> None:
    violin = bank.instruments["violin_one"]
    short = replace(violin, loop_end=np.zeros_like(violin.loop_end))
    voices = [Voice(short, line=Line(connected=1, slurred=1))]
    for end in np.arange(1.7, 2.4, 0.02):  # recorded for about 2 s
        held = notes((0.1, end, 67, 90, 0), (end, 4.0, 69, 90, 0))
        out = render(bank, held, voices, 5.0, 0.0, np.random.default_rng(0), NO_PEDAL)
        assert 1.0 < out.notes.offset[0] <= end


def test_a_repeated_pitch_ends_the_note_before() -> None:
    played = notes(
        (0.0, 5.0, 60, 80, 0),
        (1.0, 1.5, 60, 80, 0),
        (1.2, 9.0, 61, 80, 0),
        (1.3, 9.0, 60, 80, 1),
        (3.0, 3.1, 62, 80, 0),
        (3.01, 3.8, 62, 70, 0),
    )
    out = shorten_repeats(played)
    columns = (out.part, out.pitch, out.onset, out.offset)
    assert sorted(zip(*(column.tolist() for column in columns), strict=True)) == [
        (0, 60, 0.0, 1.0),
        (0, 60, 1.0, 1.5),
        (0, 61, 1.2, 9.0),
        (0, 62, 3.01, 3.8),
        (1, 60, 1.3, 9.0),
    ]
