"""Settings of the note tracker: thresholds and lengths, as in a model's card."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Self

from pydantic import Field

from model.ranges import NotNegative, Positive, checked
from service.protocol.midi_file import PEDAL_INSTRUMENTS

ONSET_RADIUS = 2  # frames either way that an onset peaks above
MAX_VELOCITY = 127
DEFAULT_VELOCITY = 80  # without a velocity head
MOST_KEPT = 0.999  # of a belief by any settings, so that a resumed one can be checked
MAX_ODDS = 6.0  # log-odds of 0.9975

_FORMER = (  # settings in older cards that are constants now
    "onset_radius_frames default_velocity second_threshold second_frames memory_frames "
    "ahead_frames least_frames"
).split()

Bias = Annotated[float, Field(ge=-MAX_ODDS, le=MAX_ODDS)]
Threshold = Annotated[float, Field(gt=0, le=1)]  # 0 is what silence has


@checked(kw_only=True)
class LineSettings:
    """Natural log-odds; ``again_threshold`` is a probability.

    Attributes:
        bias: gain of a note over silence in a frame, if the frame head is undecided...
        doubt_bias: ... and what is added to it for a player whom the network hardly knows.
        cost: of beginning a note.
        onset_weight: by how much the onset head's log-odds lower the cost.
        again_threshold: onset probability of a peak that strikes the sounding pitch again.
    """

    bias: float = 1.0
    doubt_bias: NotNegative = 3.5
    cost: NotNegative = 15.0
    onset_weight: NotNegative = 2.5
    again_threshold: Annotated[float, Field(gt=0, lt=1)] = 0.35


@checked(kw_only=True)
class TrackerSettings:
    """Thresholds are probabilities, lengths are frames (11.6 ms at 11,025 Hz).

    Attributes:
        onset_threshold: minimum onset probability of a peak that begins a note.
        onset_thresholds: the same for classes of instruments, by name. While several play, and
            while it is not clear which, the mean counts (``onset_threshold_for``).
        onset_correction_frames: added to onset times, between -0.5 and 0.5, to compensate for how
            early the model hears them.
        frame_on_threshold: frame probability that must be reached within ONSET_RADIUS of an onset.
        end_bias: added to the log-odds of the frame probability, whose sum decides where a note
            ends (``service.notes.base_tracker``): more lets notes sound longer.
        end_biases: the same for classes of instruments, by name; ``end_bias`` for the others.
        pedal_end_bias: added to those of instruments with a pedal while it is down: then strings
            ring on, which the network hears as doubt.
        min_note_frames: minimum length of a note, and minimum distance of two onsets of a pitch.
        pedal_on_threshold, pedal_off_threshold: the sustain pedal is down from the first
            probability on until it falls below the second.
        pedal_presence_threshold: share of the belief that instruments with a pedal need before a
            press is reported.
        belief_prior_notes, belief_trust, belief_solo_trust, belief_kept: of
            ``service.notes.instrument_classifier``: weight, in notes, of the prior that all classes
            share; weight of the belief relative to a note's own evidence, and the same for a note
            that sounds alone; share of the weights that is kept from note to note.
        early_odds: for ``service.notes.anytime``: added to the log-odds of the onset threshold for
            a peak whose frame is 0, 1, 2 ... frames older than the newest; nothing after the last
            of them. Empty: its EARLY_ODDS.
        usual_onset_age: median of the frames from a note's time to the newest frame when it is
            decided, if measured; stated in ``ready``.
        line: of single lines (``service.notes.tracker``). None: they are read like polyphony.

    Raises:
        ValueError: a value out of its range, or no hysteresis.
    """

    onset_threshold: Threshold = 0.5
    onset_thresholds: Mapping[str, Threshold] = field(default_factory=dict)
    onset_correction_frames: Annotated[float, Field(gt=-0.5, lt=0.5)] = 0.0
    frame_on_threshold: Threshold = 0.4
    end_bias: Bias = 0.0
    end_biases: Mapping[str, Bias] = field(default_factory=dict)
    pedal_end_bias: Bias = 0.0
    min_note_frames: Annotated[int, Field(ge=2)] = 4  # else two onsets between frames could meet
    pedal_on_threshold: Threshold = 0.6
    pedal_off_threshold: Threshold = 0.4
    pedal_presence_threshold: Threshold = 0.1
    belief_prior_notes: Positive = 2.0
    belief_trust: NotNegative = 0.5
    belief_solo_trust: NotNegative = 2.0
    belief_kept: Annotated[float, Field(ge=0, le=MOST_KEPT)] = 0.97
    early_odds: tuple[NotNegative, ...] = ()
    usual_onset_age: float | None = None
    line: LineSettings | None = None

    def __post_init__(self) -> None:
        low, high = self.pedal_off_threshold, self.pedal_on_threshold
        if low > high:
            raise ValueError(f"pedal_off_threshold {low} is above pedal_on_threshold {high}")

    @classmethod
    def from_card(cls, card: Mapping[str, Any]) -> Self:
        """The settings that a model's card recommends under "tracker"; defaults for the rest.
        Raises ValueError, also for unknown names."""
        given = dict(card.get("tracker") or {})
        if given.get("line"):
            given["line"] = _present(given["line"])
        return cls(**_present(given))

    def onset_threshold_for(self, weights: Mapping[str, float]) -> float:
        """The threshold, given how many of the recent notes each class played: the mean, in which
        ``onset_threshold`` counts as one note."""
        total = self.onset_threshold
        for name, weight in weights.items():
            total += weight * self.onset_thresholds.get(name, self.onset_threshold)
        return total / (1 + sum(weights.values()))

    @property
    def least_onset_threshold(self) -> float:
        """The lowest that ``onset_threshold_for`` may give."""
        return min(self.onset_threshold, *self.onset_thresholds.values(), 1)

    def biases_of(self, instrument: str | None) -> tuple[float, float]:
        """The end bias of notes of this class, None if unknown, and what the pedal adds to it."""
        pedalled = instrument is None or instrument in PEDAL_INSTRUMENTS
        bias = self.end_biases.get(instrument or "", self.end_bias)
        return bias, self.pedal_end_bias if pedalled else 0.0


def _present(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in _FORMER}
