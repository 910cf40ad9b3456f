"""The picture of the last notes in the terminal."""

import pytest

from clients.live.roll import MARGIN, MAX_ROWS, Roll, note_name
from tests.clients.fakes.events import off, on


def rows(roll: Roll, columns: int) -> dict[str, str]:
    lines = roll.render(MARGIN + columns).plain.splitlines()
    return {line[:MARGIN].strip(): line[MARGIN:] for line in lines}


@pytest.mark.parametrize(("pitch", "name"), [(60, "C4"), (69, "A4"), (21, "A0"), (1, "C#-1")])
def test_notes_have_names(pitch: int, name: str) -> None:
    assert note_name(pitch) == name


def test_notes_lie_at_their_times_and_grow_while_they_sound() -> None:
    roll = Roll()
    for event in (on(0, 60, 0.2), off(0, 60, 0.5), on(1, 64, 0.6), on(2, 60, 1.0)):
        roll.event(event)
    assert rows(roll, 10) == {"E4": "      █▬▬▬", "C4": "  █▬▬     "}
    roll.event(off(2, 60, 1.3))
    assert rows(roll, 10) == {"E4": "   █▬▬▬▬▬▬", "C4": "▬▬     █▬▬"}


def test_what_has_left_the_picture_is_forgotten() -> None:
    roll = Roll()
    for event in (on(0, 60, 0.0), off(0, 60, 0.5), on(1, 62, 5.0), off(1, 62, 5.2)):
        roll.event(event)
    assert list(rows(roll, 10)) == ["D4"]
    roll.event(on(2, 64, 100.0))
    assert list(rows(roll, 1_000)) == ["E4", "D4"]  # the first was drawn for the last time


def test_there_is_a_limit_to_its_rows() -> None:
    roll = Roll()
    for pitch in range(100):
        roll.event(on(pitch, pitch, 0.0))
    roll.event(off(0, 0, 1.0))
    shown = rows(roll, 10)
    assert len(shown) == MAX_ROWS
    assert next(iter(shown)) == note_name(99)
