"""Options of a stream: its audio format, and when its notes are decided."""

import math
from dataclasses import dataclass
from enum import StrEnum
from numbers import Integral
from typing import Annotated

from pydantic import AfterValidator, Field

from model.config import FRAMES, HOP, INSTRUMENTS, WINDOW
from model.instruments import LABELS_TO_INSTRUMENTS
from model.validation import validated_dataclass
from service.protocol.errors import ErrorCode, ProtocolError

MIN_LOOKAHEAD_HOPS = 4
MAX_LOOKAHEAD_HOPS = WINDOW // HOP // 2  # 32, to the middle of the window
_ROUNDING_HOPS = 1e-3  # 12 us
MAX_BLOCK_FRAMES = FRAMES + 1 - MAX_LOOKAHEAD_HOPS  # 32: fits whatever the look-ahead becomes
MAX_ANYTIME_BLOCK_FRAMES = 8  # fits beside the frames that are read again

MIN_SAMPLE_RATE_HZ, MAX_SAMPLE_RATE_HZ = 4_000, 384_000
MAX_CHANNELS = 2

LookaheadMs = Annotated[float, Field(gt=0, allow_inf_nan=False)]
BlockFrames = Annotated[int, Field(ge=1, le=MAX_BLOCK_FRAMES)]
Count = Annotated[int, Field(ge=0, le=2**53)]  # exact in every JSON parser
TuningHz = Annotated[float, Field(ge=380, le=480)]  # of A4, from Baroque France to Venice

_FORMATS = {b"\x1aE\xdf\xa3": "WebM or Matroska", b"OggS": "Ogg", b"fLaC": "FLAC", b"ID3": "MP3"}


class Mode(StrEnum):
    """When notes are decided."""

    BLOCK = "block"  # one window yields the block_frames newest frames that have look-ahead
    ANYTIME = "anytime"  # notes are sent as soon as they are certain enough


DEFAULT_BLOCK_FRAMES = {Mode.BLOCK: 4, Mode.ANYTIME: 2}


class Encoding(StrEnum):
    """Little-endian PCM sample formats."""

    PCM_S16LE = "pcm_s16le"
    PCM_F32LE = "pcm_f32le"

    @property
    def sample_bytes(self) -> int:
        return 2 if self is Encoding.PCM_S16LE else 4


class Mix(StrEnum):
    """What becomes of two channels; `left` and `right` if the two cancel each other."""

    MEAN = "mean"
    SUM = "sum"
    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioFormat:
    """The PCM that a client sends. Raises ProtocolError if its rate is not one of those taken."""

    encoding: Encoding
    sample_rate_hz: int
    channels: int = 1

    def __post_init__(self) -> None:
        rate_hz, lowest, highest = self.sample_rate_hz, MIN_SAMPLE_RATE_HZ, MAX_SAMPLE_RATE_HZ
        if not isinstance(rate_hz, Integral) or not lowest <= rate_hz <= highest:
            message = f"sample_rate must be a whole number from {lowest} to {highest} Hz"
            raise ProtocolError(ErrorCode.BAD_SAMPLE_RATE, f"{message}, not {rate_hz!r}")

    @property
    def pcm_frame_bytes(self) -> int:
        return self.encoding.sample_bytes * self.channels

    @property
    def byte_rate(self) -> int:
        """Bytes a second."""
        return self.pcm_frame_bytes * self.sample_rate_hz


def file_format(data: bytes) -> str | None:
    """The format of a file that begins so; None for what may be PCM, which a WAV nearly is."""
    if data[4:8] == b"ftyp":
        return "MP4 or M4A"
    return next((name for magic, name in _FORMATS.items() if data.startswith(magic)), None)


def check_instruments(wanted: tuple[str, ...], known: tuple[str, ...]) -> None:
    """Raises ProtocolError unless all wanted names are known."""
    unknown = [name for name in wanted if name not in known]
    if unknown:
        among = f"instruments must be among {', '.join(known) or 'none'}"
        raise ProtocolError(ErrorCode.BAD_START, f"{among}, not {', '.join(unknown)}")


def _known(name: str) -> str:
    name = LABELS_TO_INSTRUMENTS.get(name, name)
    check_instruments((name,), INSTRUMENTS)
    return name


Instrument = Annotated[str, AfterValidator(_known)]


@validated_dataclass(slots=True, kw_only=True)
class StreamOptions:
    """How a stream is transcribed.

    Attributes:
        mode: ``block`` or ``anytime``.
        lookahead_ms: audio after a frame that the model sees, in anytime mode at most; rounded to
            whole hops of the model from 4 to 32 (about 50 to 370 ms) by ``lookahead_hops``.
        block_frames: hops from window to window, and new frames that one yields; more save
            computing and add delay. None: that of DEFAULT_BLOCK_FRAMES.
        instruments: those of ``model.config.INSTRUMENTS`` to consider; empty: all that the model
            distinguishes.
        tuning_hz: frequency of the performance's A4; None: it is followed.
        bends: also report the pitch of sounding notes from frame to frame.

    Raises:
        ValueError: naming the field.
    """

    mode: Mode = Mode.BLOCK
    lookahead_ms: LookaheadMs = 100.0
    block_frames: BlockFrames | None = None
    instruments: tuple[Instrument, ...] = ()
    tuning_hz: TuningHz | None = None
    bends: bool = False

    def __post_init__(self) -> None:
        most = MAX_ANYTIME_BLOCK_FRAMES
        if self.mode is Mode.ANYTIME and self.frames_per_window > most:
            raise ValueError(f"block_frames must be from 1 to {most}, not {self.block_frames}")

    @property
    def frames_per_window(self) -> int:
        """New frames that one window yields."""
        return self.block_frames or DEFAULT_BLOCK_FRAMES[self.mode]

    def lookahead_hops(self, model_rate_hz: int) -> int:
        """Look-ahead in hops at the model's rate: at 11,025 Hz 50 ms -> 4, 100 -> 8, 200 -> 17."""
        hops = min(MAX_LOOKAHEAD_HOPS, self.lookahead_ms * model_rate_hz / 1000 / HOP)
        # `ready` states the look-ahead to the microsecond: asked for again, it must not lose a hop.
        return max(MIN_LOOKAHEAD_HOPS, math.floor(hops + _ROUNDING_HOPS))

    def actual_lookahead_ms(self, model_rate_hz: int) -> float:
        """``lookahead_ms`` in whole hops."""
        return self.lookahead_hops(model_rate_hz) * 1000.0 * HOP / model_rate_hz


FILE_OPTIONS = StreamOptions(lookahead_ms=200.0, block_frames=32)  # nobody waits for a frame
