"""Events become notes."""

from service.notes.events import NoteEvent
from service.notes.score import Score, midi_file


def event(kind: str, note_id: int, pitch: int, time_s: float) -> NoteEvent:
    return NoteEvent(
        kind=kind,  # type: ignore[arg-type]
        note_id=note_id,
        pitch=pitch,
        velocity=90,
        confidence=0.75,
        frame=round(time_s * 86),
        time_s=time_s,
    )


def test_notes_are_kept_as_they_end_and_given_by_onset() -> None:
    score = Score()
    score.add([event("note_on", 0, 72, 0.5), event("note_on", 1, 60, 0.5)])
    score.add([event("note_on", 2, 40, 1.0), event("note_off", 2, 40, 1.5)])
    assert (score.begun, score.ended) == (3, 1)
    score.add([event("note_off", 0, 72, 2.0), event("note_off", 1, 60, 3.0)])
    assert [(n.note_id, n.onset_s, n.offset_s) for n in score.notes] == [
        (1, 0.5, 3.0),
        (0, 0.5, 2.0),
        (2, 1.0, 1.5),
    ]
    assert score.notes[0].velocity == 90
    assert score.notes[0].confidence == 0.75
    assert score.midi() == midi_file(score.notes)


def test_a_score_goes_on_with_the_notes_that_sound() -> None:
    score = Score(begun=7, sounding=[event("note_on", 3, 60, 1.0), event("note_on", 6, 64, 2.0)])
    assert (score.begun, score.ended) == (7, 0)
    score.add([event("note_on", 7, 67, 3.0), event("note_off", 3, 60, 4.0)])
    assert (score.begun, score.ended) == (8, 1)
    assert [on.note_id for on in score.sounding] == [6, 7]
    assert [(note.note_id, note.onset_s, note.offset_s) for note in score.notes] == [(3, 1.0, 4.0)]
