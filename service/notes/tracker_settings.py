"""Settings of the note tracker: thresholds and lengths, as in a model's card."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field

from model.ranges import Count, Fraction, NotNegative, Positive, checked
from service.notes.onsets import AFTER, OnsetClassifier

MAX_VELOCITY = 127
MOST_KEPT = 0.999  # of a belief by any settings, so that a resumed one can be checked

Threshold = Annotated[float, Field(gt=0, le=1)]  # 0 is what silence has


@checked(kw_only=True)
class TrackerSettings:
    """Thresholds are probabilities, lengths are frames (11.6 ms at 11,025 Hz).

    Attributes:
        onset_classifier: gives the peaks of the onset head the probabilities that the onset
            thresholds apply to. None: they apply to what the head says.
        onset_threshold: minimum onset probability of a peak that begins a note.
        onset_radius_frames: a peak is the highest probability within this many frames.
        restrike_threshold: the same for a pitch that already sounds. None: ``onset_threshold``.
        onset_correction_frames: added to onset times, between -0.5 and 0.5, to compensate for how
            early the model hears them.
        frame_on_threshold: frame probability that must be reached within ``on_delay_frames`` of an
            onset; in models without an onset head, the one that begins a note.
        frame_off_threshold: a note ends when its frame probability stays below this...
        release_frames: ... for this many frames.
        pedal_frame_off_threshold: takes the place of ``frame_off_threshold`` at frames where the
            probability of the sustain pedal is ``pedal_on_threshold`` or more: then strings ring
            on, which the network hears as doubt. None: no difference.
        offset_threshold: minimum offset probability of a peak that ends a note, if the frame
            probability is then below ``frame_on_threshold``. None: peaks do not end notes.
        frame_start_threshold: a note without an onset begins when its frame probability is at
            least this...
        frame_start_frames: ... for this many frames. A ``frame_start_threshold`` of None: never.
        min_note_frames: minimum length of a note, and minimum distance of two onsets of a pitch.
        default_velocity: MIDI velocity if the model has no velocity head.
        pedal_on_threshold: the sustain pedal is down from this probability on...
        pedal_off_threshold: ... until it falls below this.
        pedal_presence_threshold: share of the belief that instruments with a pedal need before a
            press is reported.
        belief_prior_notes: of ``service.notes.belief``: weight of the prior that all classes share,
            in notes.
        belief_trust: 0: every note for itself; 1: the belief counts as much as the note's own
            evidence.
        belief_kept: share of the weights kept from note to note; 0.97: half of them is 23 notes old
            or newer.
        early_onset_thresholds: for ``service.notes.anytime``: minimum onset probability of a peak
            whose frame is 0, 1, 2 ... frames older than the newest; ``onset_threshold`` after the
            last of them. Empty: a schedule from 1, whose distance from ``onset_threshold`` halves
            every two frames.
        usual_onset_age: median of the frames from a note's time to the newest frame when it is
            decided, if measured; stated in ``ready``.

    Raises:
        ValueError: a threshold outside of 0 to 1 or met by silence, a length below 1, no
            hysteresis, or a radius too small for the classifier.
    """

    onset_classifier: OnsetClassifier | None = None
    onset_threshold: Threshold = 0.5
    restrike_threshold: Threshold | None = None
    onset_radius_frames: Count = 2
    onset_correction_frames: Annotated[float, Field(gt=-0.5, lt=0.5)] = 0.0
    frame_on_threshold: Threshold = 0.4
    frame_off_threshold: Fraction = 0.25
    release_frames: Count = 3
    pedal_frame_off_threshold: Fraction | None = None
    offset_threshold: Threshold | None = None
    frame_start_threshold: Threshold | None = 0.7
    frame_start_frames: Count = 6
    min_note_frames: Annotated[int, Field(ge=2)] = 4  # else two onsets between frames could meet
    default_velocity: Annotated[int, Field(ge=1, le=MAX_VELOCITY)] = 80
    pedal_on_threshold: Threshold = 0.6
    pedal_off_threshold: Threshold = 0.4
    pedal_presence_threshold: Threshold = 0.1
    belief_prior_notes: Positive = 2.0
    belief_trust: NotNegative = 0.5
    belief_kept: Annotated[float, Field(ge=0, le=MOST_KEPT)] = 0.97
    early_onset_thresholds: tuple[float, ...] = ()
    usual_onset_age: float | None = None

    def __post_init__(self) -> None:
        for lower, upper in (
            ("frame_off_threshold", "frame_start_threshold"),
            ("pedal_frame_off_threshold", "frame_off_threshold"),
            ("pedal_off_threshold", "pedal_on_threshold"),
        ):
            low, high = getattr(self, lower), getattr(self, upper)
            if None not in (low, high) and low > high:
                raise ValueError(f"{lower} {low} is above {upper} {high}")
        if self.onset_classifier and self.onset_radius_frames < AFTER:
            complaint = f"onset_radius_frames must be {AFTER} or more"
            raise ValueError(f"with an onset_classifier {complaint}")
        onset = [*self.early_onset_thresholds, self.onset_threshold]
        if onset != sorted(onset, reverse=True) or onset[0] > 1:
            raise ValueError(
                "early_onset_thresholds must fall from 1 at most to onset_threshold "
                f"{self.onset_threshold}, not {self.early_onset_thresholds}"
            )

    @classmethod
    def from_card(cls, card: Mapping[str, Any]) -> Self:
        """The settings that a model's card recommends under "tracker"; defaults for the rest.

        Raises ValueError, also for unknown names.
        """
        return cls(**(card.get("tracker") or {}))

    @property
    def on_delay_frames(self) -> int:
        """Frames after a frame that must be known before a note can begin there."""
        return self.onset_radius_frames

    @property
    def off_delay_frames(self) -> int:
        """Frames after a frame that must be known before a note can end there.

        Never fewer than for a beginning, so that no earlier one of its pitch can appear later.
        """
        return max(self.on_delay_frames, self.release_frames - 1)

    def onset_threshold_at(self, age: int, last_age: int) -> float:
        """Minimum onset probability of a peak of this age in frames; ``last_age`` has the full
        look-ahead."""
        if age >= last_age:
            return self.onset_threshold
        if early := self.early_onset_thresholds:
            return early[age] if age < len(early) else self.onset_threshold
        doubt = float(2 ** (-(age + 1) / 2))  # halves every two frames (23 ms)
        return self.onset_threshold + (1 - self.onset_threshold) * doubt
