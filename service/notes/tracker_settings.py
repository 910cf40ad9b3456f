"""Settings of note tracking, which are stored in a model's card."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Self

from pydantic import Field

from model.validation import Flag, NonNegative, Positive, validated_dataclass
from service.protocol.midi_file import PEDAL_INSTRUMENTS

ONSET_RADIUS = 2  # number of frames on each side with which an onset peak is compared
MAX_VELOCITY = 127
DEFAULT_VELOCITY = 80  # velocity of all notes if the network has no velocity head
MAX_KEPT = 0.999  # maximum of ``belief_kept``, which bounds the weights of a resumed belief
MAX_ODDS = 6.0  # log-odds of 0.9975

Bias = Annotated[float, Field(ge=-MAX_ODDS, le=MAX_ODDS)]
Threshold = Annotated[float, Field(gt=0, le=1)]  # probabilities of silence are 0


@validated_dataclass(kw_only=True)
class TrackerSettings:
    """Settings of a note tracker. Thresholds are probabilities. Lengths are in frames (11.6 ms at
    11,025 Hz).

    Raises:
        ValueError: a value is out of range, or the pedal's thresholds are in the wrong order.
    """

    onset_threshold: Threshold = 0.5  # minimum onset probability of a peak that starts a note
    onset_thresholds: Mapping[str, Threshold] = field(default_factory=dict)
    """Onset thresholds by instrument. The tracker uses their mean over the recent notes
    (``onset_threshold_for``)."""
    onset_correction_frames: Annotated[float, Field(gt=-0.5, lt=0.5)] = 0.0
    """Added to onset times to correct a bias of the model."""
    frame_on_threshold: Threshold = 0.4
    """Minimum frame probability at an onset or within ONSET_RADIUS after it."""
    end_bias: Bias = 0.0
    """Added to the log-odds of each frame probability. Their sum decides where a note ends
    (``service.notes.base_tracker``). A larger bias gives longer notes."""
    end_biases: Mapping[str, Bias] = field(default_factory=dict)
    """End biases by instrument. Other instruments have ``end_bias``."""
    pedal_end_bias: Bias = 0.0
    """Added to the end bias of instruments with a pedal while the pedal is down, because their
    notes then continue with lower probabilities."""
    offset_weight: NonNegative = 0.0
    """Factor of the offset head's log-odds, which shorten the notes of instruments with a pedal.
    With 0, the frame head alone decides where notes end."""
    min_note_frames: Annotated[int, Field(ge=2)] = 4
    """Minimum length of a note, and minimum distance of two onsets of a pitch. With 1, two
    successive onsets could get the same time."""
    pedal_on_threshold: Threshold = 0.6  # probability at which the sustain pedal goes down
    pedal_off_threshold: Threshold = 0.4  # probability below which the sustain pedal comes up
    pedal_presence_threshold: Threshold = 0.1
    """Minimum share of instruments with a pedal in the belief at which a press is reported."""
    belief_prior_notes: Positive = 2.0
    """Weight, in notes, of the uniform prior over all classes
    (``service.notes.instrument_classifier``)."""
    belief_trust: NonNegative = 0.5
    """Weight of the belief relative to a note's own evidence. The instrument of a note that sounds
    alone depends on SOLO_TRUST instead."""
    belief_kept: Annotated[float, Field(ge=0, le=MAX_KEPT)] = 0.97
    """Factor by which each note reduces the weights of the earlier notes."""
    early_odds: tuple[NonNegative, ...] = ()
    """In anytime mode, added to the log-odds of the onset threshold for peaks with the age 0, 1, 2
    ... frames (``service.notes.anytime``). Empty means EARLY_ODDS."""
    usual_onset_age: float | None = None
    """Median age in frames of the onsets when they are decided, or None if it was not measured. The
    message `ready` reports the resulting delay."""
    line: Flag = False
    """True if monophonic music is decoded as the best path through its frames
    (``service.notes.monophonic``), False if it is decoded like polyphonic music."""

    def __post_init__(self) -> None:
        low, high = self.pedal_off_threshold, self.pedal_on_threshold
        if low > high:
            raise ValueError(f"pedal_off_threshold {low} is above pedal_on_threshold {high}")

    @classmethod
    def from_card(cls, card: Mapping[str, Any]) -> Self:
        """Return the settings under "tracker" in a model's card. Missing settings get their
        defaults. Raises ValueError for an invalid value or an unknown name."""
        return cls(**(card.get("tracker") or {}))

    def onset_threshold_for(self, weights: Mapping[str, float]) -> float:
        """Return the mean onset threshold of the recent notes. ``onset_threshold`` counts as one
        more note. weights: number of recent notes by instrument."""
        total = self.onset_threshold
        for name, weight in weights.items():
            total += weight * self.onset_thresholds.get(name, self.onset_threshold)
        return total / (1 + sum(weights.values()))

    @property
    def least_onset_threshold(self) -> float:
        """Lower bound of ``onset_threshold_for``."""
        return min(self.onset_threshold, *self.onset_thresholds.values(), 1)

    def evidence_of(self, instrument: str | None) -> tuple[float, float, float]:
        """Return the end bias of an instrument, the bias that is added while the pedal is down, and
        the weight of the offset head. None is an unknown instrument, which may have a pedal."""
        pedalled = instrument is None or instrument in PEDAL_INSTRUMENTS
        bias = self.end_biases.get(instrument or "", self.end_bias)
        return (bias, self.pedal_end_bias, self.offset_weight) if pedalled else (bias, 0.0, 0.0)
