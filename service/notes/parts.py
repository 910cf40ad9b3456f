"""Settles the instrument labels of a complete recording: one performer has one instrument.

Labels of single notes are uncertain, so a soloist appears as several instruments. The instrument
with the most notes certainly plays. Another plays too if it has MIN_SHARE of the notes, and others
sound together with it for MIN_OVERLAP of its time. Notes of all other instruments are reassigned:

* to the leading instrument, if theirs rarely sounds together with others. An instrument leads a
  section between silences of PAUSE_S if it has CLEAR_SHARE of its notes, so that soloists may
  follow each other in a recording;
* else to the playing instrument whose median pitch is nearest.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from model.config import INSTRUMENTS
from service.notes.events import Note

MIN_SHARE, MIN_OVERLAP = 0.1, 0.6
PAUSE_S, CLEAR_SHARE, CLEAR_NOTES = 10.0, 0.8, 10


def settle_instruments(notes: list[Note]) -> list[Note]:
    """Return the notes of a recording with settled instruments. A reassigned note has no
    ``instrument_probability``. Notes without an instrument stay as they are."""
    chosen = [i for i, note in enumerate(notes) if note.instrument is not None]
    if not chosen:
        return notes
    names = np.array([INSTRUMENTS.index(notes[i].instrument or "") for i in chosen])
    spans = np.array([(notes[i].onset_frame, notes[i].offset_frame) for i in chosen])
    pitches = np.array([notes[i].pitch for i in chosen])
    counts = np.bincount(names, minlength=len(INSTRUMENTS))
    overlaps = _overlaps(names, spans) >= MIN_OVERLAP
    plays = (counts >= MIN_SHARE * len(names)) & overlaps
    plays[counts.argmax()] = True
    leaders = _leaders(names, np.array([(notes[i].onset_s, notes[i].offset_s) for i in chosen]))
    medians = {int(n): float(np.median(pitches[names == n])) for n in np.flatnonzero(plays)}
    settled = list(notes)
    for i, name, leader, pitch in zip(chosen, names, leaders, pitches, strict=True):
        if plays[name] or name == leader:
            continue
        near = min(medians, key=lambda n: abs(medians[n] - pitch)) if overlaps[name] else leader
        instrument = INSTRUMENTS[near]
        settled[i] = replace(notes[i], instrument=instrument, instrument_probability=None)
    return settled


def _overlaps(names: NDArray[np.int64], spans: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return for each class the share of its time in which other classes sound."""
    changes = np.zeros((len(INSTRUMENTS), int(spans.max()) + 1), np.int32)
    np.add.at(changes, (names, spans[:, 0]), 1)
    np.add.at(changes, (names, spans[:, 1]), -1)
    sounds = np.cumsum(changes, axis=1, out=changes) > 0
    several = np.count_nonzero(sounds, axis=0) > 1
    return (sounds & several).sum(axis=1) / np.maximum(1, sounds.sum(axis=1))


def _leaders(names: NDArray[np.int64], times_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the class that leads the section of each note."""
    leaders = np.full(len(names), np.bincount(names).argmax())
    order = np.argsort(times_s[:, 0], kind="stable")
    ends_s = np.maximum.accumulate(times_s[order, 1])
    pauses = np.flatnonzero(times_s[order[1:], 0] - ends_s[:-1] >= PAUSE_S) + 1
    for section in np.split(order, pauses):
        counts = np.bincount(names[section])
        if counts.max() >= max(CLEAR_NOTES, CLEAR_SHARE * len(section)):
            leaders[section] = counts.argmax()
    return leaders
