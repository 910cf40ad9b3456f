"""Settles the instrument labels of a complete performance: one performer has one instrument.

Labels of single notes are uncertain, so the notes of a soloist may have several labels. The
instrument with the most notes counts as playing. Another instrument counts too if it has at least
MIN_SHARE of the notes, and others sound together with it for at least MIN_OVERLAP of its time.
Notes of all other instruments are reassigned, unless their instrument leads their section:

* If their instrument sounds together with others for less than MIN_OVERLAP of its time, they get
  the leading instrument of their section. Silences of PAUSE_S or more separate sections, so that a
  performance may have several soloists in turn. An instrument leads a section if it has at least
  CLEAR_NOTES notes and CLEAR_SHARE of the section's notes. If none does, the instrument with the
  most notes in the performance leads.
* Notes of other instruments get the playing instrument whose median pitch is nearest.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from model.config import INSTRUMENTS
from service.notes.events import Note

MIN_SHARE, MIN_OVERLAP = 0.1, 0.6
PAUSE_S, CLEAR_SHARE, CLEAR_NOTES = 10.0, 0.8, 10


def settle_instruments(notes: list[Note]) -> list[Note]:
    """Return the notes of a performance with settled instruments. A reassigned note has no
    ``instrument_probability``. Notes without an instrument are not changed."""
    labelled = [i for i, note in enumerate(notes) if note.instrument is not None]
    if not labelled:
        return notes
    classes = np.array([INSTRUMENTS.index(notes[i].instrument or "") for i in labelled])
    spans = np.array([(notes[i].onset_frame, notes[i].offset_frame) for i in labelled])
    times_s = np.array([(notes[i].onset_s, notes[i].offset_s) for i in labelled])
    pitches = np.array([notes[i].pitch for i in labelled])
    counts = np.bincount(classes, minlength=len(INSTRUMENTS))
    overlaps = _overlaps(classes, spans) >= MIN_OVERLAP
    plays = (counts >= MIN_SHARE * len(classes)) & overlaps
    plays[counts.argmax()] = True
    leaders = _leaders(classes, times_s)
    medians = {int(c): float(np.median(pitches[classes == c])) for c in np.flatnonzero(plays)}
    settled = list(notes)
    for i, own, leader, pitch in zip(labelled, classes, leaders, pitches, strict=True):
        if plays[own] or own == leader:
            continue
        new = min(medians, key=lambda c: abs(medians[c] - pitch)) if overlaps[own] else leader
        instrument = INSTRUMENTS[new]
        settled[i] = replace(notes[i], instrument=instrument, instrument_probability=None)
    return settled


def _overlaps(classes: NDArray[np.int64], spans: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return, for each class, the share of its time in which other classes sound. spans: onset and
    offset frames, [notes, 2]."""
    edges, at = np.unique(spans, return_inverse=True)
    changes = np.zeros((len(INSTRUMENTS), len(edges)), np.int16)
    np.add.at(changes, (classes, at.reshape(spans.shape)[:, 0]), 1)
    np.add.at(changes, (classes, at.reshape(spans.shape)[:, 1]), -1)
    sounds = np.cumsum(changes, axis=1)[:, :-1] > 0
    several = np.count_nonzero(sounds, axis=0) > 1
    frames = np.diff(edges)
    return (sounds & several) @ frames / np.maximum(1, sounds @ frames)


def _leaders(classes: NDArray[np.int64], times_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the class that leads the section of each note."""
    leaders = np.full(len(classes), np.bincount(classes).argmax())
    order = np.argsort(times_s[:, 0], kind="stable")
    ends_s = np.maximum.accumulate(times_s[order, 1])
    pauses = np.flatnonzero(times_s[order[1:], 0] - ends_s[:-1] >= PAUSE_S) + 1
    for section in np.split(order, pauses):
        counts = np.bincount(classes[section])
        if counts.max() >= max(CLEAR_NOTES, CLEAR_SHARE * len(section)):
            leaders[section] = counts.argmax()
    return leaders
