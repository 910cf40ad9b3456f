"""Settings of the note tracker: thresholds and lengths, as in a model's card."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from service.notes.belief import DEFAULTS, BeliefSettings

MAX_VELOCITY = 127
OPTIONAL = ("restrike_threshold", "offset_threshold", "frame_start_threshold")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerSettings:
    """Thresholds are probabilities, lengths are frames (11.6 ms at 11,025 Hz).

    Attributes:
        onset_threshold: minimum onset probability of a peak that begins a note.
        onset_radius_frames: a peak is the highest probability within this many frames.
        restrike_threshold: the same for a pitch that already sounds. None: ``onset_threshold``.
        onset_correction_frames: added to onset times, between -0.5 and 0.5, to compensate for how
            early the model hears them.
        frame_on_threshold: frame probability that must be reached within ``on_delay_frames`` of an
            onset; in models without an onset head, the one that begins a note.
        frame_off_threshold: a note ends when its frame probability stays below this...
        release_frames: ... for this many frames.
        offset_threshold: minimum offset probability of a peak that ends a note, if the frame
            probability is then below ``frame_on_threshold``. None: peaks do not end notes.
        frame_start_threshold: a note without an onset begins when its frame probability is at
            least this...
        frame_start_frames: ... for this many frames. A ``frame_start_threshold`` of None: never.
        min_note_frames: minimum length of a note, and minimum distance of two onsets of a pitch.
        default_velocity: MIDI velocity if the model has no velocity head.
        velocity_scale: what the velocity head says is multiplied by this, since it hears how loud a
            note arrives and typical recordings are not at full scale.
        pedal_on_threshold: the sustain pedal is down from this probability on...
        pedal_off_threshold: ... until it falls below this.
        pedal_presence_threshold: share of the belief that instruments with a pedal need before a
            press is reported.
        belief_prior_notes, belief_trust, belief_kept: of the belief about which instruments play
            (``service.notes.belief``).
        early_onset_thresholds: for ``service.notes.anytime``: minimum onset probability of a peak
            whose frame is 0, 1, 2 ... frames older than the newest; ``onset_threshold`` after the
            last of them. Empty: a schedule from 1, whose distance from ``onset_threshold`` halves
            every two frames.
        usual_onset_age: median of the frames from a note's time to the newest frame when it is
            decided, if measured; stated in ``ready``.

    Raises:
        ValueError: a threshold outside of 0 to 1 or met by silence, a length below 1, or no
            hysteresis.
    """

    onset_threshold: float = 0.5
    restrike_threshold: float | None = None
    onset_radius_frames: int = 2
    onset_correction_frames: float = 0.0
    frame_on_threshold: float = 0.4
    frame_off_threshold: float = 0.25
    release_frames: int = 3
    offset_threshold: float | None = None
    frame_start_threshold: float | None = 0.7
    frame_start_frames: int = 6
    min_note_frames: int = 4
    default_velocity: int = 80
    velocity_scale: float = 1.0
    pedal_on_threshold: float = 0.6
    pedal_off_threshold: float = 0.4
    pedal_presence_threshold: float = 0.1
    belief_prior_notes: float = DEFAULTS.prior_notes
    belief_trust: float = DEFAULTS.trust
    belief_kept: float = DEFAULTS.kept
    early_onset_thresholds: tuple[float, ...] = ()
    usual_onset_age: float | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name.startswith(("early_", "belief_")) or field.name == "usual_onset_age":
                continue
            if field.name in OPTIONAL and value is None:
                continue
            if field.name == "velocity_scale":
                if not 0 < value < math.inf:
                    raise ValueError(f"velocity_scale must be above 0, not {value!r}")
                continue
            if field.name == "onset_correction_frames":
                if not -0.5 < value < 0.5:
                    raise ValueError(f"{field.name} must be between -0.5 and 0.5, not {value!r}")
                continue
            if field.name.endswith("_threshold"):
                if not 0 <= value <= 1:
                    raise ValueError(f"{field.name} must be from 0 to 1, not {value!r}")
                if value == 0 and field.name != "frame_off_threshold":
                    raise ValueError(f"{field.name} must be above 0, which silence has")
            elif not isinstance(value, int) or value < 1:
                raise ValueError(f"{field.name} must be a whole number from 1, not {value!r}")
        if self.min_note_frames < 2:  # two onsets between frames could meet
            raise ValueError(f"min_note_frames must be at least 2, not {self.min_note_frames}")
        if self.frame_off_threshold > self.frame_on_threshold:
            raise ValueError(
                f"frame_off_threshold {self.frame_off_threshold} is above "
                f"frame_on_threshold {self.frame_on_threshold}"
            )
        if self.pedal_off_threshold > self.pedal_on_threshold:
            raise ValueError(
                f"pedal_off_threshold {self.pedal_off_threshold} is above "
                f"pedal_on_threshold {self.pedal_on_threshold}"
            )
        start = self.frame_start_threshold
        if start is not None and start < self.frame_off_threshold:
            raise ValueError(
                f"frame_start_threshold {start} is below "
                f"frame_off_threshold {self.frame_off_threshold}"
            )
        if self.default_velocity > MAX_VELOCITY:
            raise ValueError(f"default_velocity must be at most 127, not {self.default_velocity}")
        self._check_early()
        _ = self.belief

    @property
    def belief(self) -> BeliefSettings:
        """The settings of the belief.

        Raises ValueError for those that make no sense.
        """
        return BeliefSettings(self.belief_prior_notes, self.belief_trust, self.belief_kept)

    @classmethod
    def from_card(cls, card: Mapping[str, Any]) -> Self:
        """The settings that a model's card recommends under "tracker"; defaults for the rest.

        Raises ValueError for unknown names.
        """
        values = dict(card.get("tracker") or {})
        if "early_onset_thresholds" in values:
            values["early_onset_thresholds"] = tuple(values["early_onset_thresholds"])
        unknown = sorted(values.keys() - {field.name for field in dataclasses.fields(cls)})
        if unknown:
            raise ValueError(f"the model's card names unknown tracker settings: {unknown}")
        return cls(**values)

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
        if self.early_onset_thresholds:
            return [*self.early_onset_thresholds, self.onset_threshold][
                min(age, len(self.early_onset_thresholds))
            ]
        return self.onset_threshold + (1 - self.onset_threshold) * _doubt(age)

    def _check_early(self) -> None:
        """Raises ValueError unless the thresholds by age lead to those of the full look-ahead."""
        onset = [*self.early_onset_thresholds, self.onset_threshold]
        if onset != sorted(onset, reverse=True) or onset[0] > 1:
            raise ValueError(
                "early_onset_thresholds must fall from 1 at most to onset_threshold "
                f"{self.onset_threshold}, not {self.early_onset_thresholds}"
            )


def _doubt(age: int) -> float:
    """Default extra threshold by age, as a fraction: halves every two frames (23 ms)."""
    return float(2 ** (-(age + 1) / 2))
