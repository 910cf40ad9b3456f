"""Decodes the audio of a sound or video file with FFmpeg (PyAV), frame by frame.

Only containers and codecs of recordings are allowed: no playlists, devices, video decoders or
references to other files. Encoders add samples before the sound. FFmpeg drops these samples if the
container states their number; otherwise this module drops them for MP3 and AAC.
"""

import ctypes
import io
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import av
import numpy as np
from av.audio.frame import AudioFrame
from numpy.typing import NDArray

from service.protocol.errors import ErrorCode, ProtocolError
from service.protocol.options import MAX_SAMPLE_RATE_HZ, MIN_SAMPLE_RATE_HZ
from service.protocol.titles import readable_title

_CONTAINERS = (
    "wav w64 aiff caf au voc flac ogg mp3 aac mov matroska asf avi mpegts mpeg flv amr wv tta ape "
    "dsf iff nistsphere ircam pvf avr epaf sds sox shn tak mpc mpc8 oma rm xwma mmf "
    "ac3 eac3 dts truehd mlp mxf wtv nut"
).split()
_PCM = (
    "s8 u8 s16le s16be s24le s24be s32le s32be f32le f32be f64le f64be alaw mulaw dvd bluray "
    "u16le u16be u32le s8_planar s16le_planar s16be_planar s24le_planar s32le_planar"
)
_CODECS = frozenset(
    [f"pcm_{kind}" for kind in _PCM.split()]
    + [f"dsd_{bits}sbf{planar}" for bits in "lm" for planar in ("", "_planar")]
    + "flac alac wavpack tta ape mp3float mp3 mp2float mp2 aac vorbis opus speex".split()
    + "ac3 eac3 dca wmav1 wmav2 wmapro wmalossless adpcm_ms adpcm_ima_wav adpcm_ima_qt".split()
    + "amrnb amrwb libopencore_amrnb libopencore_amrwb gsm gsm_ms g726 g726le".split()
    + "8svx_exp 8svx_fib adpcm_yamaha shorten tak mpc7 mpc8 atrac3 atrac3p cook real_144".split()
    + "real_288 sipr truehd mlp mace3 mace6 qdm2".split()
)
# Samples that encoder and decoder add before the sound. MP3: LAME 576, decoder 529. AAC: one frame.
_DELAYS = {"mp3float": 576 + 529, "aac": 1024}
_NO_DELAY_STATED = ("aac", "asf", "avi", "flv", "mpeg", "mpegts", "nut", "wav")
# Containers in which a gap between timestamps is not an error, or is reported by another check.
_MAY_PAUSE = ("mov", "matroska", "asf", "avi", "flv", "mpeg", "mpegts", "mp3", "aac")
# Containers without timestamps: FFmpeg counts packets, and a corrupt part is one long packet.
_COUNTED = ("mp3", "ac3")
_TAGS = (b"ID3", b"TAG", b"APETAGEX")
_HEAD_BYTES = 1 << 16  # contains the format chunk of a WAV, also after metadata of recorders
# First bytes of containers that FFmpeg does not recognise after an ID3 tag.
_AFTER_TAG = (b"RIFF", b"RF64", b"riff", b"FORM", b".snd", b"caff", b"OggS")
_EXTENSIBLE = 0xFFFE
# Sample value of silence (if not 0), and full scale, by sample format.
_ZERO = {"u8": 128}
_SCALES = {"u8": 2**7, "s16": 2**15, "s32": 2**31}
_UNKNOWN_BYTES = 0x7F000000  # minimum stated size of a WAV that was written to a pipe
_TOLERANCE_S = 0.1  # maximum error of a stated duration
# Maximum memory block of FFmpeg. Recordings need less, but crafted files state sizes of gigabytes.
MAX_ALLOCATION_BYTES = 128 << 20
# Gaps between timestamps that are filled with silence. Longer gaps are errors of the timestamps.
_MIN_GAP_S, _MAX_GAP_S = 0.02, 1800.0
_SILENCE_SAMPLES = 4096  # maximum length of a block of silence in a gap


class Container:
    """Decoder of the audio stream of a file.

    Attributes:
        rate_hz: sample rate of the first frame.
        header_duration_s: duration that the header states or implies, or None.
        title: title tag of the file, or "".
        corruption: message about the first corrupt part so far, or None.
    """

    def __init__(self, file: BinaryIO) -> None:
        """Raises ProtocolError if the file has no sound or is not a readable audio file."""
        source = _WithoutTag(file)
        size = source.seek(0, io.SEEK_END)
        source.seek(0)
        head = source.read(_HEAD_BYTES)
        self._container = _open(source, head)
        try:
            first = self._begin(head)
            name = self._container.format.name.partition(",")[0]
            if name == "mov" and self._stream.duration == (self._stream.start_time or 0):
                # An edit of 0 s means the complete sound, but FFmpeg would decode nothing.
                self._container.close()
                self._container = _open(source, head, advanced_editlist="0")
                first = self._begin(head)
        except BaseException:
            self._container.close()
            raise
        stream = self._stream
        self.rate_hz: int = stream.rate
        without_xing = name == "mp3" and not stream.start_time
        unstated = name in _NO_DELAY_STATED or without_xing
        # Without an edit list, FFmpeg skips samples of a MOV or MP4 only if side data states them.
        if name == "mov" and first is not None and first.pts == 0:
            unstated = not first.get_sidedata("skip_samples").data_size
        self._unwanted = _DELAYS.get(self._codec.name, 0) if unstated else 0
        self._may_pause = name in _MAY_PAUSE
        self._is_counted = name in _COUNTED
        self._read = 0  # samples per channel
        self._decoded_packets, self._decoded_bytes = 0, 0
        self._lost_s = 0.0  # estimated duration of corrupt parts that the timestamps do not contain
        # Expected time of the next frame; None if unknown. Sound may start later than the video, or
        # after an empty edit, and a gap then precedes it.
        begin_us, streams = self._container.start_time, self._container.streams
        self._due_s = None if begin_us is None else begin_us / 1e6
        if len(streams) == 1:
            self._due_s = 0.0 if name == "mov" else None
        self.corruption: str | None = None
        self.title = self._title()
        # ADTS, and MP3 without a Xing header, do not state a duration. FFmpeg extrapolates it from
        # the first frames, which may be silence of few bytes.
        is_extrapolated = name == "aac" or without_xing
        # A file may state 0 s.
        self.header_duration_s = None if is_extrapolated else self._length_s() or None
        self._expected_s = 0.0 if is_extrapolated else self._expected_duration_s(head, size)

    def frames(self) -> Iterator[tuple[NDArray[np.float32], int]]:
        """Yield samples, float32 [n, channels], and their rate. Silence fills gaps between the
        timestamps. Corrupt or missing parts and unexpected gaps set ``corruption``."""
        for packet in self._packets:
            try:
                decoded = self._codec.decode(packet)
            except av.FFmpegError:
                if not any(tag in bytes(packet) for tag in _TAGS):
                    self._report_corruption("cannot be decoded")
                    self._lost_s += self._uncounted_s(packet)
                continue
            self._decoded_packets += 1
            self._decoded_bytes += packet.size
            for frame in decoded:
                if not MIN_SAMPLE_RATE_HZ <= frame.rate <= MAX_SAMPLE_RATE_HZ:
                    # In a crafted file, each frame may have a different rate, up to 2 GHz.
                    self._report_corruption("a frame has an invalid sample rate")
                    continue
                values = _values(frame)
                if gap := self._gap(frame):
                    if not self._may_pause:
                        self._report_corruption(f"{gap / frame.rate:.1f} s of audio is missing")
                    silence = np.zeros((_SILENCE_SAMPLES, values.shape[1]), np.float32)
                    for begin in range(0, gap, _SILENCE_SAMPLES):
                        yield silence[: gap - begin], frame.rate
                    self._unwanted = 0  # the timestamps already account for the encoder's samples
                self._read += gap + len(values)
                drop = min(self._unwanted, len(values))
                self._unwanted -= drop
                if drop < len(values):
                    yield values[drop:], frame.rate
        if self._expected_s > self._read / self.rate_hz + _TOLERANCE_S:
            self._report_corruption(f"the header states a duration of {self._expected_s:.1f} s")

    def close(self) -> None:
        self._container.close()

    @property
    def may_exceed_full_scale(self) -> bool:
        """True for floating-point PCM."""
        return str(self._codec.name).startswith(("pcm_f32", "pcm_f64"))

    def _begin(self, head: bytes) -> Any:
        """Set the audio stream, its decoder and its packets. Return the first packet, or None."""
        stream = self._container.streams.best("audio")
        if stream is None:
            raise ProtocolError(ErrorCode.EMPTY_AUDIO, "the file has no sound")
        name = stream.codec_context.name if stream.codec_context else "an unknown codec"
        actual = _actual_codec(name, head)
        if actual not in _CODECS:
            message = f"not a readable audio file: unsupported codec {actual}"
            raise ProtocolError(ErrorCode.UNDECODABLE, message)
        self._codec: Any = stream.codec_context
        if actual != name:
            self._codec = av.CodecContext.create(actual, "r")
            self._codec.sample_rate = stream.rate
            self._codec.layout = stream.codec_context.layout
        self._stream, packets = stream, self._demuxed(stream)
        first = next(packets, None)
        self._packets = packets if first is None else chain([first], packets)
        return first

    def _demuxed(self, stream: Any) -> Iterator[Any]:
        while True:
            try:
                yield from self._container.demux(stream)
                return
            except IndexError:
                pass  # PyAV raises IndexError for a stream that starts later in the file
            except av.FFmpegError:
                return  # `frames` reports the missing audio

    def _report_corruption(self, reason: str) -> None:
        at_s = self._read / self.rate_hz
        self.corruption = self.corruption or f"the file is corrupt after {at_s:.1f} s: {reason}"

    def _uncounted_s(self, packet: Any) -> float:
        """Return the estimated duration of a corrupt packet beyond its counted duration."""
        if not self._is_counted or not self._decoded_packets or packet.duration is None:
            return 0.0
        packets = round(packet.size * self._decoded_packets / self._decoded_bytes)
        return max(0, packets - 1) * float(packet.duration * packet.time_base)

    def _gap(self, frame: AudioFrame) -> int:
        """Return the number of missing samples before a frame, according to its timestamp."""
        length_s, due_s = frame.samples / frame.rate, self._due_s
        if frame.pts is None or frame.time_base is None:
            self._due_s = None if due_s is None else due_s + length_s
            return 0
        time_s = float(frame.pts * frame.time_base)
        self._due_s = time_s + length_s
        # The timestamps of a chained stream restart at 0, which gives a negative gap.
        gap_s = self._lost_s + (0.0 if due_s is None else time_s - due_s)
        self._lost_s = 0.0
        if gap_s >= _MAX_GAP_S:
            self._report_corruption(f"a gap of {gap_s:.0f} s between timestamps")
        return round(gap_s * frame.rate) if _MIN_GAP_S < gap_s < _MAX_GAP_S else 0

    def _title(self) -> str:
        # OGG files have their tags in the stream.
        for tags in (self._container.metadata, self._stream.metadata):
            for name, value in tags.items():
                if name.lower() == "title":
                    return readable_title(value)
        return ""

    def _length_s(self) -> float | None:
        stream, container = self._stream, self._container
        if stream.duration is not None and stream.time_base is not None:
            # FFmpeg counts 24 bits per sample, but each has 32.
            in_24_bits = stream.codec_context.name == "pcm_f24le"
            return float(stream.duration * stream.time_base) * (0.75 if in_24_bits else 1)
        if container.duration is not None and len(container.streams) == 1:
            return container.duration / 1e6
        return None

    def _expected_duration_s(self, head: bytes, size: int) -> float:
        """Return the duration in the header, or 0 if FFmpeg may have derived it from the size."""
        rate = self._stream.codec_context.bit_rate
        if head[:4] == b"RIFF":  # FFmpeg reduces the stated size to the actual size
            stated = int.from_bytes(head[4:8], "little") + 8
            return 8 * stated / rate if rate and size < stated < _UNKNOWN_BYTES else 0.0
        # For an OGG file, FFmpeg may state only the duration of the last chained stream.
        header_duration_s = 0.0 if head[:4] == b"OggS" else self.header_duration_s or 0.0
        return header_duration_s if not rate or header_duration_s * rate / 8 > size else 0.0


class _WithoutTag:
    """Binary file without the ID3 tag that some programs put before its data."""

    def __init__(self, file: BinaryIO) -> None:
        self.read = file.read
        self._file, self._start = file, 0
        self._start = self._tag_bytes()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_SET:
            offset += self._start
        return self._file.seek(offset, whence) - self._start

    def tell(self) -> int:
        return self._file.tell() - self._start

    def _tag_bytes(self) -> int:
        """Return the length of the tag at the start, or 0."""
        self.seek(0)
        head = self.read(_HEAD_BYTES)
        if not head.startswith(b"ID3") or len(head) < 10:
            return 0
        size = 10 + sum((head[9 - n] & 0x7F) << 7 * n for n in range(4))
        self.seek(size)
        return size if self.read(4) in _AFTER_TAG else 0


@cache
def _limit_allocations() -> None:
    """Limit the allocations of the FFmpeg libraries that PyAV bundles. Has no effect on others."""
    for folder in ("av.libs", "av/.dylibs"):
        for path in Path(av.__file__).parents[1].joinpath(folder).glob("*avutil*"):
            ctypes.CDLL(str(path)).av_max_alloc(ctypes.c_size_t(MAX_ALLOCATION_BYTES))


def _open(file: _WithoutTag, head: bytes, **options: str) -> Any:
    """Open a container with the allowed formats and codecs only. Raises ProtocolError."""
    _limit_allocations()
    options |= {
        "format_whitelist": ",".join(_CONTAINERS),
        "codec_whitelist": ",".join(_CODECS),
        "protocol_whitelist": "",
    }
    file.seek(0)
    # Without `close`, so that PyAV does not close the file.
    unclosed = SimpleNamespace(read=file.read, seek=file.seek, tell=file.tell)
    try:
        # Tags that are not UTF-8 are not an error.
        return av.open(unclosed, options=options, metadata_errors="surrogateescape")
    except (av.FFmpegError, ValueError) as error:
        message = "not a readable audio file; use WAV, FLAC, MP3, M4A, OGG, WebM or similar"
        if head[4:8] == b"ftyp":
            message = "not a readable audio file: this M4A, MP4 or MOV file is corrupt or truncated"
        raise ProtocolError(ErrorCode.UNDECODABLE, message) from error


def _actual_codec(name: str, head: bytes) -> str:
    """Return the codec of a file. FFmpeg reports a different codec for some WAV files."""
    if head[:4] == b"RIFX":
        return f"big-endian {name}"
    tag = head.find(b"fmt ") + 8
    extensible = int.from_bytes(head[tag : tag + 2], "little") == _EXTENSIBLE
    # FFmpeg reads 32-bit samples with 24 valid bits as floats, because the first version of Adobe
    # Audition wrote floats. Files with an extensible header contain integers.
    return "pcm_s32le" if name == "pcm_f24le" and extensible else name


def _values(frame: AudioFrame) -> NDArray[np.float32]:
    """Return samples [n, channels] with full scale 1. Integers of up to 24 bits are exact."""
    values: NDArray[Any] = frame.to_ndarray()
    planar = frame.format.is_planar
    values = values.T if planar else values.reshape(-1, frame.layout.nb_channels)
    kind = frame.format.packed.name if planar else frame.format.name
    if kind not in _SCALES:
        # Values too large for float32 become infinite, and AudioDecoder replaces them.
        with np.errstate(over="ignore", invalid="ignore"):
            return values.astype(np.float32, copy=False)
    integers = values.astype(np.float32)
    return (integers - np.float32(_ZERO.get(kind, 0))) / np.float32(_SCALES[kind])
