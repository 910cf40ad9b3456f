"""The sustain pedal: how players press it, and its effect on dampers and notes."""

import numpy as np
from numpy.typing import NDArray

from training.music.notes import Notes, merged, with_pedal

PEDAL_TRAVEL_S = 0.03
"""A pedal moves between its depths in this time."""
FREE_DEPTH, HELD_DEPTH = 0.2, 0.85
"""Pedal depths up to which dampers rest fully on the strings, and from which they are clear."""
SUSTAIN_DEPTH = 0.5
"""From this depth on a pedal counts as down, as in MIDI (controller 64 at 64 or more)."""
PEDAL_CHANGE_S = 0.12
"""A pedal stays up for this long when a long press is changed."""
HALF_PEDAL = 0.3
"""Share of the players who use half the pedal."""
FULL_DEPTH = (0.85, 1.0)
HALF_DEPTH = (0.3, 0.75)


def invented_pedal(notes: Notes, rng: np.random.Generator) -> NDArray[np.float64]:
    """Pedal presses [n, 2] for a score that has none: changed at some onsets, after the note."""
    changes = [0.0]
    wanted = rng.uniform(0.4, 3.0, max(1, len(notes)))
    for onset in notes.onset:
        if onset - changes[-1] >= wanted[len(changes) % len(wanted)]:
            changes.append(float(onset))
    times = np.array(changes)
    if len(times) < 2:
        return np.zeros((0, 2))
    begin = times[:-1] + rng.uniform(0.04, 0.15) * rng.uniform(0.5, 1.5, len(times) - 1)
    presses = np.stack([begin, times[1:] + rng.uniform(-0.04, 0.015)], axis=1)
    return presses[rng.random(len(presses)) < rng.uniform(0.4, 1.0)]


def changed_pedal(pedal: NDArray[np.float64], longest_s: float) -> NDArray[np.float64]:
    """Presses [n, 2], those of over ``longest_s`` changed in between, as a player would."""
    count = np.maximum(1, np.ceil((pedal[:, 1] - pedal[:, 0]) / longest_s)).astype(int)
    number = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    length = np.repeat((pedal[:, 1] - pedal[:, 0]) / count, count)
    begin = np.repeat(pedal[:, 0], count) + number * length
    last = number == np.repeat(count, count) - 1
    return np.stack([begin, begin + length - np.where(last, 0, PEDAL_CHANGE_S)], axis=1)


def pedal_depths(pedal: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """A depth for each press of [n, 2]: [m, 3] of begin s, end s and depth 0..1.

    Some players press halfway for some chords, or let the pedal rise halfway before its end, which
    thins the sound without ending it.
    """
    half = rng.uniform(0.2, 0.6) if rng.random() < HALF_PEDAL else 0.0
    rows = []
    for begin, end in pedal:
        depth = rng.uniform(*FULL_DEPTH)
        kind = rng.random()
        if kind < half / 2:
            depth = rng.uniform(*HALF_DEPTH)
        elif kind < half:
            turn = rng.uniform(begin, end)
            rows.append((begin, turn, depth))
            begin, depth = turn, rng.uniform(*HALF_DEPTH)
        rows.append((begin, end, depth))
    return np.array(rows).reshape(-1, 3)


def held_by_pedal(notes: Notes, pedal: NDArray[np.float64]) -> Notes:
    """Extend notes whose keys are released while a pedal [n, 3] is down to the pedal's release.

    A pedal pressed later catches the rest of a sound, but the note has ended: MIDI instruments, and
    labels of recordings made on them, treat a pedal the same way.
    """
    down = merged(pedal[pedal[:, 2] >= SUSTAIN_DEPTH, :2])
    return with_pedal(notes, down)


def contact(depth: NDArray[np.float64]) -> NDArray[np.float64]:
    """How firmly dampers rest at a pedal depth 0..1: 1 is fully, 0 clear of the strings.

    At half pedal the felt still brushes the strings: sounds last three to four times as long.
    """
    return np.asarray(np.clip((HELD_DEPTH - depth) / (HELD_DEPTH - FREE_DEPTH), 0, 1) ** 2)


def pedal_depth(pedal: NDArray[np.float64], length: int, sample_rate: int) -> NDArray[np.float64]:
    """The pedal's depth at each of ``length`` samples, from presses [n, 3] (begin s, end s, depth).

    It moves linearly for PEDAL_TRAVEL_S after each begin and end; a faster change does not let it
    rise completely.
    """
    depth = np.zeros(length)
    for begin, end, target in pedal:
        depth[max(0, round(begin * sample_rate)) : max(0, round(end * sample_rate))] = target
    travel = max(1, round(PEDAL_TRAVEL_S * sample_rate))
    total = np.cumsum(np.concatenate([np.full(travel, depth[0]), depth]))
    return (total[travel:] - total[:-travel]) / travel


def contact_time(depth: NDArray[np.float64], sample_rate: int) -> NDArray[np.float32]:
    """Seconds of full contact that dampers of released keys have had until each sample [length]."""
    return (np.cumsum(contact(depth)) / sample_rate).astype(np.float32)
