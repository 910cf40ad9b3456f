"""Notes gathered from events, and the MIDI file made of them."""

import io
from itertools import accumulate

import pretty_midi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.midi.notes import ReceivedNotes
from service.protocol.midi_file import FASTEST_BPM, TICKS_PER_BEAT, Tempo, TempoMap
from service.protocol.server_messages import Pedal
from tests.clients.fakes.events import off, on


@given(
    st.lists(st.floats(0.16, 3.0), min_size=1, max_size=30),
    st.floats(0, 10),
    st.floats(0, 100),
    st.sampled_from([1.0, 1.5]),
)
def test_ticks_are_times(
    periods_s: list[float], first_s: float, time_s: float, quarters: float
) -> None:
    """Beats lie on a sequencer's lines, and none is faster than any that may be asked for, not even
    the one before the first."""
    periods_s = [quarters * period_s for period_s in periods_s]
    beats_s = list(accumulate(periods_s, initial=first_s))
    ticks = TempoMap(Tempo(beats_s, quarters))
    tick, at_s, before = ticks.tick(time_s), 0.0, (0, 0)
    for place, us_per_quarter in ticks.changes:
        at_s += (min(tick, place) - before[0]) / TICKS_PER_BEAT * before[1] / 1e6
        before = (min(tick, place), us_per_quarter)
    at_s += (tick - before[0]) / TICKS_PER_BEAT * before[1] / 1e6
    assert at_s == pytest.approx(time_s, abs=max(periods_s) / TICKS_PER_BEAT + 1e-5)
    assert all(60e6 / us_per_quarter <= FASTEST_BPM + 0.1 for _, us_per_quarter in ticks.changes)
    per_beat = TICKS_PER_BEAT * quarters
    assert all((ticks.tick(beat_s) + 1) % per_beat <= 2 for beat_s in beats_s[1:])


@pytest.mark.parametrize("instrument", [None, "piano"])
def test_a_pedal_that_is_down_to_the_end_is_released_there(instrument: str | None) -> None:
    notes = ReceivedNotes()
    for event in (
        Pedal(down=True, frame=0, time_s=0.0),
        on(0, 60, 0.5, instrument=instrument),
        off(0, 60, 1.5),
    ):
        notes.event(event)
    (part,) = pretty_midi.PrettyMIDI(io.BytesIO(notes.midi())).instruments
    assert [(c.value, round(c.time, 3)) for c in part.control_changes] == [(127, 0.0), (0, 1.5)]
