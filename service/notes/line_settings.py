"""Settings of single lines: how they are told from polyphony, and how they are read."""

from typing import Annotated

from pydantic import Field

from model.ranges import Count, NotNegative, checked

Inside = Annotated[float, Field(gt=0, lt=1)]


@checked(kw_only=True)
class LineSettings:
    """Thresholds are probabilities, lengths are frames, the others are natural log-odds.

    Attributes:
        second_threshold: frame probability from which a second pitch is heard...
        second_frames: ... if it lasts for this many frames.
        memory_frames: there is no single line for this long after a second pitch; how surely a
            player is heard is judged by the latest frames of this number, too.
        ahead_frames: frames after a frame that must be known before it is decided; at least 4.
        bias: gain of a note over silence in a frame, if the frame head is undecided...
        doubt_bias: ... and what is added to it for a player whom the network hardly knows.
        cost: of beginning a note.
        onset_weight: by how much the onset head's log-odds lower the cost.
        again_threshold: onset probability of a peak that strikes the sounding pitch again.
        least_frames: minimum length of a note.
    """

    second_threshold: Inside = 0.5
    second_frames: Count = 5
    memory_frames: Count = 172
    ahead_frames: Annotated[int, Field(ge=4, le=32)] = 8
    bias: float = 1.0
    doubt_bias: NotNegative = 3.5
    cost: NotNegative = 15.0
    onset_weight: NotNegative = 2.5
    again_threshold: Inside = 0.35
    least_frames: Annotated[int, Field(ge=2)] = 6
