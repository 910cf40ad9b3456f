"""Options of a stream: audio format, mode, look-ahead and block size."""

import math
from dataclasses import dataclass
from enum import StrEnum
from numbers import Integral
from typing import Annotated

from pydantic import AfterValidator, Field

from model.config import FRAMES, HOP, INSTRUMENTS, SAMPLE_RATE, WINDOW
from model.instruments import LABELS_TO_INSTRUMENTS
from model.validation import validated_dataclass
from service.protocol.errors import ErrorCode, ProtocolError

MIN_LOOKAHEAD_HOPS = 4
MAX_LOOKAHEAD_HOPS = WINDOW // HOP // 2  # 32, to the middle of the window
LOOKAHEAD_RANGE_MS = tuple(
    round(1000 * hops * HOP / SAMPLE_RATE) for hops in (MIN_LOOKAHEAD_HOPS, MAX_LOOKAHEAD_HOPS)
)
_ROUNDING_HOPS = 1e-3  # tolerance of 12 us
MAX_BLOCK_FRAMES = FRAMES + 1 - MAX_LOOKAHEAD_HOPS  # 32: fits into a window with any look-ahead
MAX_ANYTIME_BLOCK_FRAMES = 8  # fits into a window together with the repeated frames

MIN_SAMPLE_RATE_HZ, MAX_SAMPLE_RATE_HZ = 4_000, 384_000
MAX_CHANNELS = 2

LookaheadMs = Annotated[float, Field(gt=0, allow_inf_nan=False)]
BlockFrames = Annotated[int, Field(ge=1, le=MAX_BLOCK_FRAMES)]
Count = Annotated[int, Field(ge=0, le=2**53)]  # exact in every JSON parser
TuningHz = Annotated[float, Field(ge=380, le=480)]  # historical values of A4: 392 to 466 Hz

_FORMATS = {b"\x1aE\xdf\xa3": "WebM or Matroska", b"OggS": "Ogg", b"fLaC": "FLAC", b"ID3": "MP3"}
FORMAT_BYTES = 8  # number of first bytes that ``file_format`` examines


class Mode(StrEnum):
    """Rule for deciding notes.

    In ``block`` mode each frame is decided once, when its full look-ahead has arrived. In
    ``anytime`` mode a note is sent as soon as its confidence passes a threshold.
    """

    BLOCK = "block"
    ANYTIME = "anytime"


DEFAULT_BLOCK_FRAMES = {Mode.BLOCK: 4, Mode.ANYTIME: 2}


class Encoding(StrEnum):
    """Little-endian PCM sample formats."""

    PCM_S16LE = "pcm_s16le"
    PCM_F32LE = "pcm_f32le"

    @property
    def sample_bytes(self) -> int:
        return 2 if self is Encoding.PCM_S16LE else 4


class Mix(StrEnum):
    """Mix of two channels: their mean, their sum if one channel is silent, or only the louder
    channel if they cancel each other."""

    MEAN = "mean"
    SUM = "sum"
    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioFormat:
    """PCM format of the input. Raises ProtocolError if the sample rate is invalid."""

    encoding: Encoding
    sample_rate_hz: int
    channels: int = 1

    def __post_init__(self) -> None:
        rate_hz, lowest, highest = self.sample_rate_hz, MIN_SAMPLE_RATE_HZ, MAX_SAMPLE_RATE_HZ
        if not isinstance(rate_hz, Integral) or not lowest <= rate_hz <= highest:
            message = f"sample_rate must be an integer from {lowest} to {highest} Hz"
            raise ProtocolError(ErrorCode.BAD_SAMPLE_RATE, f"{message}, not {rate_hz!r}")

    @property
    def pcm_frame_bytes(self) -> int:
        """Bytes of one sample of every channel."""
        return self.encoding.sample_bytes * self.channels

    @property
    def byte_rate(self) -> int:
        return self.pcm_frame_bytes * self.sample_rate_hz


def file_format(data: bytes) -> str | None:
    """Return the name of the file format that starts with these bytes, or None if they may be PCM.
    A WAV file counts as PCM."""
    if data[4:8] == b"ftyp":
        return "MP4 or M4A"
    return next((name for magic, name in _FORMATS.items() if data.startswith(magic)), None)


def lookahead_notice(lookahead_ms: float | None) -> str:
    """Return a line for the user of --lookahead-ms if the value will be limited, else ""."""
    low, high = LOOKAHEAD_RANGE_MS
    if lookahead_ms is None or low <= lookahead_ms <= high:
        return ""
    used = min(max(lookahead_ms, low), high)
    return f"--lookahead-ms {lookahead_ms:g} is limited to {used} (range: {low} to {high})"


def check_instruments(requested: tuple[str, ...], available: tuple[str, ...]) -> None:
    """Raise ProtocolError unless all requested instruments are available."""
    unknown = [name for name in requested if name not in available]
    if unknown:
        among = f"instruments must be among {', '.join(available) or 'none'}"
        raise ProtocolError(ErrorCode.BAD_START, f"{among}, not {', '.join(unknown)}")


def _instrument(name: str) -> str:
    name = LABELS_TO_INSTRUMENTS.get(name, name)
    check_instruments((name,), INSTRUMENTS)
    return name


Instrument = Annotated[str, AfterValidator(_instrument)]


@validated_dataclass(slots=True, kw_only=True)
class StreamOptions:
    """Transcription options of a stream. Raises ValueError for a field out of range; the message
    names it."""

    mode: Mode = Mode.BLOCK
    lookahead_ms: LookaheadMs = 100.0
    """Duration of the audio that follows a frame and is used to predict it. In anytime mode it is a
    maximum. ``lookahead_hops`` rounds it down and limits it to 4 to 32 hops (46 to 372 ms at
    11,025 Hz)."""
    block_frames: BlockFrames | None = None
    """Number of new frames per window. Larger blocks need less computing time, but add delay. None
    means the mode's DEFAULT_BLOCK_FRAMES."""
    instruments: tuple[Instrument, ...] = ()  # empty means all that the model distinguishes
    tuning_hz: TuningHz | None = None  # frequency of A4; None means to estimate it from the audio
    bends: bool = False  # True to report the pitch of sounding notes for each frame

    def __post_init__(self) -> None:
        max_frames = MAX_ANYTIME_BLOCK_FRAMES
        if self.mode is Mode.ANYTIME and self.frames_per_window > max_frames:
            limit = f"block_frames must be from 1 to {max_frames} in anytime mode"
            raise ValueError(f"{limit}, not {self.block_frames}")

    @property
    def frames_per_window(self) -> int:
        return self.block_frames or DEFAULT_BLOCK_FRAMES[self.mode]

    def lookahead_hops(self, model_rate_hz: int) -> int:
        """Return the look-ahead in hops. At 11,025 Hz, 100 ms are 8 hops, and 200 ms are 17."""
        hops = min(MAX_LOOKAHEAD_HOPS, self.lookahead_ms * model_rate_hz / 1000 / HOP)
        # A client may resume with the look-ahead of `ready`, which is rounded to microseconds.
        return max(MIN_LOOKAHEAD_HOPS, math.floor(hops + _ROUNDING_HOPS))

    def actual_lookahead_ms(self, model_rate_hz: int) -> float:
        return self.lookahead_hops(model_rate_hz) * 1000.0 * HOP / model_rate_hz


FILE_OPTIONS = StreamOptions(lookahead_ms=200.0, block_frames=32)
"""Default options of recordings, for which delay does not matter."""
