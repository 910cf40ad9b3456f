"""Where notes begin: a second look at the peaks of the onset probability.

The network marks overtones that are struck with their note, strings that ring on while others are
struck, and a speaker's syllables, with small onset probabilities, much like soft notes. What it
says about the frames before and after a peak, and about pitches an octave, a twelfth or a semitone
away, tells them apart: a small classifier reads that and replaces the onset probability of the
peak. ``training.shipping.onsets`` fits it on what the trained network hears.
"""

from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from model.config import PITCHES
from model.ranges import checked

CANDIDATE = 0.05
"""Minimum onset probability of a peak that the classifier judges; lower ones begin no note."""
HISTORY = 20
"""Frames before a peak that it reads."""
AFTER = 2
"""Frames after a peak that it reads, as far as they are known."""
HEADS = ("onset", "frame", "velocity", "offset")
"""Heads that it reads; without all four there is no classifier."""

_NEAR = (-2, -1, 0, 1, 2, 3, 5, 8, 13, 20)  # frames before the peak, of its own pitch
_PAST = (range(3, 7), range(7, 13), range(13, 21))
_INTERVALS = (-34, -31, -28, -24, -19, -12, -2, -1, 1, 2, 12, 19, 24)  # semitones
_LEAST = 2e-3  # probabilities below it are alike

_Cell = tuple[str, int, int]  # head, frames after the peak, semitones above it


def _groups() -> list[list[_Cell]]:
    """The cells about a peak; the classifier reads the maximum of each group."""
    onset, frame = "onset", "frame"
    groups = [[(head, -ago, 0)] for head in (onset, frame) for ago in _NEAR]
    groups += [[("velocity", 0, 0)], *([("offset", after, 0)] for after in (-1, 0, 1))]
    for interval in _INTERVALS:
        groups.append([(onset, after, interval) for after in range(-2, AFTER + 1)])
        groups.append([(frame, after, interval) for after in range(AFTER + 1)])
    return [*groups, *([(onset, -ago, 0) for ago in past] for past in _PAST)]


_GROUPS: Final = _groups()
_CELLS: Final = [cell for group in _GROUPS for cell in group]
_FIRST: Final = np.cumsum([0, *(len(group) for group in _GROUPS[:-1])])
_FRAMES: Final = np.array([frames for _, frames, _ in _CELLS])
_SEMITONES: Final = np.array([semitones for *_, semitones in _CELLS])
INPUTS = len(_GROUPS) + 3
"""Inputs of the classifier: the groups, the pitch twice, how much after the peak is known."""

Layer = tuple[tuple[tuple[float, ...], ...], tuple[float, ...]]
"""Weights [out, in] and biases [out]."""


@checked(eq=False, repr=False)
class OnsetClassifier:
    """A perceptron with rectified hidden layers, as in a model's card.

    Raises:
        ValueError: the layers do not fit together or to the inputs.
    """

    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        sizes = [INPUTS, *(len(biases) for _, biases in self.layers)]
        for (weights, _), (inputs, outputs) in zip(self.layers, pairwise(sizes), strict=True):
            if len(weights) != outputs or any(len(row) != inputs for row in weights):
                raise ValueError(f"a layer of the onset classifier is not {outputs} by {inputs}")
        if sizes[-1] != 1:
            raise ValueError("the onset classifier must have one output")

    @cached_property
    def _arrays(self) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        return [(np.array(weights).T, np.array(biases)) for weights, biases in self.layers]

    def __call__(self, inputs: NDArray[np.float64]) -> NDArray[np.float64]:
        """[n] probabilities that a note begins, of ``surroundings``."""
        *hidden, (weights, biases) = self._arrays
        for inner, bias in hidden:
            inputs = np.maximum(inputs @ inner + bias, 0)
        return np.asarray(1 / (1 + np.exp(-_between(inputs @ weights + biases, -30, 30)[:, 0])))


def cell_rows(heads: tuple[str, ...]) -> NDArray[np.int64]:
    """The row of each cell that ``surroundings`` reads. Raises ValueError unless all of HEADS are
    among the heads."""
    if not set(HEADS) <= set(heads):
        raise ValueError(f"an onset classifier needs the heads {HEADS}, not {heads}")
    return np.array([heads.index(head) for head, *_ in _CELLS])


class WindowFrames:
    """The frames that the classifier reads of successive windows, each one frame further.

    Frames older than those of a window are as earlier windows gave them when they were the oldest,
    so with their full look-ahead; silence precedes the stream.
    """

    def __init__(self, heads: int) -> None:
        self._before = np.zeros((heads, HISTORY, PITCHES), np.float32)
        self._unknown = np.zeros((heads, AFTER, PITCHES), np.float32)

    def around(self, window: NDArray[np.float32]) -> NDArray[np.float32]:
        """[heads, HISTORY + n + AFTER, PITCHES] about the next window, [heads, n, PITCHES]."""
        seen = np.concatenate([self._before, window, self._unknown], axis=1)
        self._before = seen[:, 1 : 1 + HISTORY]
        return seen


def surroundings(
    probabilities: NDArray[np.float32],
    rows: NDArray[np.int64],
    at: NDArray[np.int64],
    pitch: NDArray[np.int64],
    known: NDArray[np.int64],
) -> NDArray[np.float64]:
    """What the classifier reads about n peaks: [n, INPUTS].

    In float64, so that a peak is judged alike whatever else is judged with it.

    Args:
        probabilities: [heads, frames, PITCHES], with HISTORY frames before each peak and AFTER
            behind it; zeros where a frame is not known.
        rows: of ``cell_rows``.
        at, pitch: the peaks, [n] each; ``at`` are frames of ``probabilities``.
        known: frames after each peak that are known, 0 to AFTER.
    """
    semitone = _between(pitch[:, None] + _SEMITONES, 0, PITCHES - 1)  # the outermost never sound
    cells = probabilities[rows, at[:, None] + _FRAMES, semitone]
    found = np.maximum.reduceat(cells, _FIRST, axis=1).astype(np.float64)
    found = _between(found, _LEAST, 1 - _LEAST)
    height = (pitch - PITCHES / 2) / 12
    inputs = np.empty((len(pitch), INPUTS))
    inputs[:, :-3] = np.log(found / (1 - found)) / 4
    inputs[:, -3], inputs[:, -2], inputs[:, -1] = height, height**2 / 4, known / AFTER
    return inputs


def _between(values: NDArray[Any], least: float, most: float) -> NDArray[Any]:
    """``np.clip``, which takes several times as long for so few values."""
    return np.minimum(np.maximum(values, least), most)


def peaks(onset: NDArray[np.float32], radius: int, least: float) -> NDArray[np.bool_]:
    """Where [frames, PITCHES] is at least ``least``, which is above 0, above the ``radius`` frames
    before and not below those after: the first of equals is the peak. Outside there is silence."""
    found = onset >= least
    for shift in range(1, radius + 1):
        found[shift:] &= onset[shift:] > onset[:-shift]
        found[:-shift] &= onset[:-shift] >= onset[shift:]
    return found
