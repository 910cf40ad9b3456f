"""Configurations of the networks, as frozen dataclasses that are stored with the weights.

The *paper* (Draguns et al., AAAI 2021) normalises over features, uses the erf GELU and describes
one shuffle direction. The authors' *released* code normalises over the sequence, uses the sigmoid
GELU and shuffles in the other direction. Each choice is a separate field, so any combination can be
trained and loaded.
"""

from __future__ import annotations

import dataclasses
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from model.instruments import INSTRUMENT_HEADS as INSTRUMENT_HEADS
from model.instruments import INSTRUMENTS as INSTRUMENTS
from model.validation import (
    Count,
    Flag,
    Fraction,
    NonNegative,
    NonNegativeInt,
    Positive,
    validated_dataclass,
)

HOP = 128  # samples between two frames
WINDOW = 8192  # samples in the network's input
PITCHES = 128  # MIDI note numbers
FRAMES = WINDOW // HOP - 1  # 63: frame i describes sample HOP * (i + 1) of the window
CENTRE_FRAME = FRAMES // 2  # 31: describes sample 4096, the middle of the window
SAMPLE_RATE = 11_025  # Hz, of the shipped networks; 86.13 frames per second

NOTE_HEADS = ("frame", "onset", "velocity", "offset")
HEADS = (*NOTE_HEADS, "pedal", *INSTRUMENT_HEADS)
CENTS = "cents"
"""Name of the last output row of a network with a filterbank. Its values are 0.5 + c / SCALE_CENTS
if the sound is c cents above the pitch, or 0 if there is no sound (``SpectralPeaks``)."""
RANGE_CENTS = 50.0  # maximum distance of a sound from its pitch: half a semitone
SCALE_CENTS = 4 * RANGE_CENTS
STEM_REACH = 2  # number of columns on either side that the first convolution uses
MAX_CACHED_HOPS = 32  # maximum age, in hops, of cached results that a stream reuses
LOGIT_OFFSET = -4.0  # added to all logits (released code), so that notes are improbable at first

Norm = Literal["feature", "sequence", "none"]
Activation = Literal["gelu", "sigmoid_gelu", "relu"]
Window = Literal[128, 256, 512, 1024, 2048, 4096, 8192]


@validated_dataclass()
class RSEConfig:
    """A Residual Shuffle-Exchange network (paper, section "Residual Shuffle-Exchange Network")."""

    maps: Count = 192  # m, number of features per position
    blocks: Count = 2  # number of Beneš blocks; one more switch layer follows the last
    norm: Norm = "feature"
    """Normalisation in each switch unit and after each strided convolution: over features (paper's
    LayerNorm), over the sequence (released code), or none (an ablation)."""
    activation: Activation = "gelu"
    """The paper's GELU, the released code's x sigma(1.702 x), or ReLU (an ablation)."""
    hidden_factor: Count = 2
    """Width of the hidden layer divided by the width of the unit's input (2m)."""
    residual: Annotated[float, Field(gt=0, lt=1)] = 0.9
    """Initial residual scale r = sigma(S). It also determines h = sqrt(1 - r^2) / 4."""
    residual_speed: Positive = 1.0
    """Factor by which S is multiplied before the sigmoid (released code: 2)."""
    shuffle: Literal["released", "paper"] = "released"
    """Order of the shuffles, as in the released code or in the paper's text (``model.switch``)."""
    init: Literal["released", "paper"] = "released"
    """Initialisation of W, and of the linear map of the strided front-end. "released": Glorot,
    which gives the update c a standard deviation of 0.75. "paper": c has a standard deviation of 1,
    so that units preserve inputs of standard deviation 0.25 (``model.switch.keep_amplitude``)."""
    dropout: Fraction = 0.1
    """Dropout rate. After every switch layer, this rate divided by log2 of the sequence length is
    used."""
    unit: Literal["residual", "gated"] = "residual"
    """The paper's unit, or the gated unit of the original Shuffle-Exchange network. Gated units use
    only maps, blocks, shuffle and dropout. The strided front-end still uses norm, activation and
    init."""
    residual_scale: Literal["learned", "one", "none"] = "learned"
    """"learned": sigma(S). Ablations in the paper: o = i + h c ("one") and o = c ("none")."""


RELEASED_RSE = RSEConfig(norm="sequence", activation="sigmoid_gelu", residual_speed=2.0)
"""The switch units of the authors' released code."""

TEXT_RSE = RSEConfig(shuffle="paper", init="paper", dropout=0.0)
"""The shuffle-exchange network that the paper's text describes, which has no dropout."""


@validated_dataclass()
class StridedConfig:
    """Stride-2 convolutions on the raw waveform (paper, section "Prepending convolutions")."""

    convolutions: Annotated[int, Field(ge=0, lt=HOP.bit_length())] = 2
    """Number of convolutions, each of which halves the length of the sequence."""
    input_noise: NonNegative = 0.001
    """Standard deviation of the noise added to the input in training (released code)."""
    window: Window = 8192
    """Number of samples, in the middle of the input, that the network uses. It predicts only the
    frames inside these samples: only the middle frame if there are 128 samples."""
    fourier: Flag = False
    """True if the input is the interleaved complex spectrum of the window instead of its samples,
    as for the published MusicNet weights."""


@validated_dataclass()
class FilterbankConfig:
    """Learnable constant-Q filterbank, harmonic stack and small convolutions."""

    lookahead: Annotated[int, Field(ge=0, le=512, multiple_of=HOP)] = 512
    """Number of samples that each kernel covers after the moment that its frame describes. At most
    the minimum look-ahead of streams (``service.protocol.options.MIN_LOOKAHEAD_HOPS``)."""
    channels: Count = 32  # output channels of every convolution
    convolutions: NonNegativeInt = 3  # number of 3 x 3 convolutions after the first convolution

    # Constants of all networks.
    lowest_pitch: ClassVar = 21  # MIDI note of the lowest filter (A0)
    semitones: ClassVar = 91  # number of pitches with filters; the highest is 4978 Hz
    bins_per_semitone: ClassVar = 3  # number of filters per pitch, evenly spaced
    kernel_lengths: ClassVar = (1024, 2048, 4096)
    """Lengths in samples. Each filter uses the shortest kernel that contains its window."""
    quality: ClassVar = 40.0
    """Number of periods in a filter's window. The window is at least half as long as the shortest
    kernel, and at most as long as the longest."""
    floor_db: ClassVar = -90.0
    """Level of silence: a power, relative to a full-scale sine, added before the logarithm."""
    harmonics: ClassVar = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
    """Multiples of a pitch's frequency whose filters become the channels of the pitch."""
    octaves: ClassVar = 8
    """Number of octaves of 12 pitches. Each is a separate position of the network's sequence."""
    frames_per_patch: ClassVar = 2  # number of adjacent frames that share a position

    @property
    def halo(self) -> int:
        """Number of columns before the window that the convolutions use."""
        return STEM_REACH + self.convolutions

    @property
    def edge(self) -> int:
        """Number of columns at the window's end whose kernels extend beyond it."""
        return self.lookahead // HOP

    @property
    def context(self) -> int:
        """Number of samples before the window on which its columns depend. With this context, a
        column is the same in every window that contains it, so a stream can cache it."""
        return max(self.kernel_lengths) - self.lookahead + HOP * (self.halo - 1)


@validated_dataclass()
class ModelConfig:
    """A transcription network: front-end, shuffle-exchange network, heads."""

    name: Annotated[str, Field(min_length=1)] = "paper"  # shown in cards and by the service
    sample_rate: Count = 11_000  # sample rate of the input in Hz
    front_end: StridedConfig | FilterbankConfig = field(default_factory=StridedConfig)
    rse: RSEConfig = field(default_factory=RSEConfig)
    heads: Annotated[tuple[str, ...], Field(min_length=1)] = ("frame",)
    """Predictions: "frame" first, then any others of :data:`HEADS`. Instruments, if any, are last
    and complete, because the classes of labels have their order."""
    calibration: Flag = True
    """True if each pitch's frame logits have a trained scale and offset (released code)."""

    def __post_init__(self) -> None:
        heads, are_valid = self.heads, set(self.heads) <= set(HEADS)
        if heads[0] != "frame" or not are_valid or len(set(heads)) < len(heads):
            raise ValueError(
                f"heads must be 'frame', then any others of {HEADS} without repeats; got {heads}"
            )
        number = len(INSTRUMENT_HEADS)
        if set(heads) & set(INSTRUMENT_HEADS) and heads[-number:] != INSTRUMENT_HEADS:
            raise ValueError(f"heads must end with all of {INSTRUMENT_HEADS} or none; got {heads}")
        halved = isinstance(self.front_end, StridedConfig) and self.front_end.convolutions > 1
        if halved and self.rse.maps < 2:  # the first convolution has maps // 2 channels
            raise ValueError("maps must be at least 2 for two or more convolutions, not 1")

    @property
    def context(self) -> int:
        """Number of samples before the window on which its frames depend."""
        return self.front_end.context if isinstance(self.front_end, FilterbankConfig) else 0

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the output rows: the heads and, with a filterbank, CENTS."""
        return (*self.heads, CENTS) if isinstance(self.front_end, FilterbankConfig) else self.heads

    @property
    def min_lookahead_hops(self) -> int:
        """Minimum look-ahead in hops, from a frame to the window's end. With a filterbank, the
        frame's kernels must end within the window. A smaller ``StridedConfig.window`` is not taken
        into account."""
        front = self.front_end
        return max(1, front.edge if isinstance(front, FilterbankConfig) else 1)

    @property
    def preroll_hops(self) -> int:
        """Number of hops after which a front-end that starts mid-stream has replaced all columns
        and cached results, so that it returns the same bits as one that started with the stream."""
        front_end = self.front_end
        if not isinstance(front_end, FilterbankConfig):
            return WINDOW // HOP
        unsettled = front_end.halo + front_end.edge
        return (WINDOW + max(self.context, (MAX_CACHED_HOPS + unsettled) * HOP)) // HOP

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary that :meth:`from_json` reads back."""
        kind = "strided" if isinstance(self.front_end, StridedConfig) else "filterbank"
        out = dataclasses.asdict(self)
        out["front_end"] = {"kind": kind, **out["front_end"]}
        return out

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ModelConfig:
        """Return the configuration in a card. Raises ValueError for unknown or invalid fields, and
        KeyError or TypeError if the structure is wrong."""
        front = dict(data["front_end"])
        kinds = {"strided": StridedConfig, "filterbank": FilterbankConfig}
        kind = front.pop("kind", None)
        if kind not in kinds:
            raise ValueError(f"unknown front-end {kind!r}; expected one of {sorted(kinds)}")
        return cls(**data | {"front_end": kinds[kind](**front)})


PAPER = ModelConfig()
"""The paper's MusicNet network: raw waveform, two convolutions, m = 192, two Beneš blocks."""

_WITHOUT_NOISE = StridedConfig(input_noise=0.0)
PAPER_TEXT = replace(
    PAPER, name="paper-text", front_end=_WITHOUT_NOISE, rse=TEXT_RSE, calibration=False
)
"""The paper's network as described by the text alone."""

RELEASED = ModelConfig(name="released", rse=RELEASED_RSE)
"""The paper's network as computed by the authors' released code."""

LIVE = ModelConfig(
    name="live",
    sample_rate=SAMPLE_RATE,
    front_end=FilterbankConfig(lookahead=256),
    rse=RSEConfig(maps=96, blocks=1, dropout=0.0),
    heads=HEADS,
    calibration=False,
)
"""For real-time transcription on a laptop's CPU: filterbank, one Beneš block, all heads."""

ACCURATE = replace(
    LIVE,
    name="accurate",
    front_end=FilterbankConfig(lookahead=256, channels=64),
    rse=replace(LIVE.rse, maps=192, blocks=2),
)
"""For GPUs and recordings: twice as wide as `live`, with two Beneš blocks."""

LIGHT = replace(
    LIVE,
    name="light",
    front_end=FilterbankConfig(lookahead=128, channels=24),
    rse=replace(LIVE.rse, hidden_factor=1),
)
"""For slow processors: half as many products as `live`, and two thirds of its time in float32. Its
filters have a shorter look-ahead, so its minimum delay is one hop shorter."""
