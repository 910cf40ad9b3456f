"""Tests of the decoder for audio files."""

import io
import struct
from collections.abc import Iterator
from functools import cache, partial

import av
import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from service.audio.decode import AudioDecoder, SampleArray
from service.protocol.errors import ErrorCode, ProtocolError
from tests.service.apps import sound_file
from tests.service.audio.encode import encode_file

RATE_HZ = 48_000
LOSSLESS = [
    *(("WAV", kind) for kind in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")),
    *(("W64", "PCM_16"), ("AU", "PCM_16"), ("CAF", "PCM_24"), ("AIFF", "PCM_16")),
    *(("FLAC", "PCM_16"), ("FLAC", "PCM_24")),
    *((kind, "PCM_16") for kind in ("NIST", "IRCAM", "PVF", "PAF", "AVR")),
    *(("NIST", "PCM_24"), ("IRCAM", "FLOAT")),
]
LOSSY = [("WAV", "IMA_ADPCM"), ("WAV", "ALAW"), ("OGG", "VORBIS"), ("OGG", "OPUS")]
MP3 = ("MP3", "MPEG_LAYER_III")
# Containers and codecs. An "f4v" file is fragmented and has no edit list.
KINDS: list[tuple[str, str]] = [
    *[(kind, "aac") for kind in ("adts", "ipod", "mov", "matroska", "mpegts", "flv", "f4v")],
    *[("mp3", "libmp3lame"), ("avi", "libmp3lame"), ("mp2", "mp2"), ("vob", "mp2")],
    *[("ogg", "libopus"), ("webm", "libopus"), ("ogg", "vorbis"), ("webm", "vorbis")],
    *[("ogg", "flac"), ("ipod", "alac"), ("wv", "wavpack"), ("tta", "tta")],
    *[("matroska", "ac3"), ("asf", "wmav2"), ("nut", "aac")],
    *[(kind, "libmp3lame") for kind in ("wav", "asf", "mpeg")],
]
VIDEO = ("avi", "mov", "matroska", "mpegts")  # in all except AVI, audio may start after video
# Maximum shift by an encoder. FFmpeg skips the delay of Microsoft's WMA encoder, which is longer
# than that of its own.
MAX_SHIFT_MS = {"mp2": 11, "wmav2": 47}


def noise(channels: int = 1) -> NDArray[np.float32]:
    shape = 2 * RATE_HZ, channels
    return np.random.default_rng(0).uniform(-0.3, 0.3, shape).astype(np.float32)


def decode(data: bytes | bytearray) -> NDArray[np.float32]:
    with AudioDecoder(io.BytesIO(data)) as decoder:
        return np.concatenate(list(decoder))


def decode_corrupt(data: bytes) -> tuple[NDArray[np.float32], str]:
    """Return the decoded samples and the message of the final error."""
    blocks: list[NDArray[np.float32]] = []
    with AudioDecoder(io.BytesIO(data)) as decoder, pytest.raises(ProtocolError) as caught:
        blocks.extend(decoder)
    assert caught.value.code == "undecodable"
    return np.concatenate(blocks), str(caught.value)


@pytest.mark.parametrize(("container", "subtype"), LOSSLESS + LOSSY)
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_equal_those_of_libsndfile(container: str, subtype: str, channels: int) -> None:
    data = sound_file(noise(channels=channels), container, subtype, RATE_HZ)
    expected, _ = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    atol = 0.0 if (container, subtype) in LOSSLESS else 1e-5
    np.testing.assert_allclose(decode(data), expected.mean(axis=1), rtol=0, atol=atol)


@pytest.mark.parametrize("container", ["WAV", "FLAC", "OGG"])
@pytest.mark.parametrize("title", ["", "Ωμέγα", "Caf!", "x" * 300])
def test_title_is_read_from_tags(container: str, title: str) -> None:
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", RATE_HZ, 1, format=container) as sound:
        if title:
            sound.title = title
        sound.write(noise())
    data = file.getvalue()
    with AudioDecoder(io.BytesIO(data)) as decoder:
        assert decoder.title == title[:200]
    if title == "Caf!" and container != "OGG":  # Ogg pages have checksums
        with AudioDecoder(io.BytesIO(data.replace(b"Caf!", b"Caf\xe9"))) as decoder:
            assert decoder.title == "Café"


@pytest.mark.parametrize("channels", [1, 3, 6, 64])
def test_blocks_are_short(channels: int) -> None:
    samples = noise() * np.linspace(0.5, 1, channels, dtype=np.float32)
    file = io.BytesIO(sound_file(samples, "WAV", "FLOAT", RATE_HZ))
    with AudioDecoder(file) as decoder:
        assert (decoder.audio.sample_rate_hz, decoder.header_duration_s) == (RATE_HZ, 2.0)
        blocks = list(decoder)
    assert not file.closed
    assert max(map(len, blocks)) < 10_000
    np.testing.assert_allclose(np.concatenate(blocks), samples.mean(axis=1), atol=1e-6)


@pytest.mark.parametrize(
    ("container", "codec", "video", "start"),
    [(*kind, "", 0) for kind in KINDS]
    + [(*kind, "mpeg4", 0) for kind in KINDS if kind[0] in VIDEO]
    + [(*kind, "mpeg4", RATE_HZ) for kind in KINDS if kind[0] in VIDEO[1:]]
    + [("matroska", "aac", "mpeg4", 30 * RATE_HZ)],
)
def test_click_keeps_its_time(container: str, codec: str, video: str, start: int) -> None:
    click = np.arange(240)
    samples = np.zeros((2 * RATE_HZ, 2), np.float32)
    samples[RATE_HZ : RATE_HZ + 240] = (0.8 * np.exp(-click / 24) * np.sin(0.7 * click))[:, None]
    decoded = decode(encode_file(samples, container, codec, RATE_HZ, video, start))[start:]
    shift = np.argmax(np.abs(decoded)) - np.argmax(np.abs(samples[:, 0]))
    assert abs(1000 * shift / RATE_HZ) <= MAX_SHIFT_MS.get(codec, 2)
    assert len(decoded) == pytest.approx(2 * RATE_HZ, abs=4_000)


def test_video_without_audio_is_rejected() -> None:
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as out:
        stream = out.add_stream("mpeg4", rate=10, width=64, height=64, pix_fmt="yuv420p")
        picture = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8))
        out.mux([*stream.encode(picture), *stream.encode(None)])
    with pytest.raises(ProtocolError, match="the file has no sound"):
        AudioDecoder(io.BytesIO(file.getvalue()))


@cache
def recording(container: str, codec: str) -> bytes:
    """Return two seconds of noise. libsndfile writes upper-case containers, ffmpeg the others."""
    if container.isupper():
        return sound_file(noise(), container, codec, RATE_HZ)
    return encode_file(noise(channels=2), container, codec, RATE_HZ)


@pytest.mark.parametrize(
    "kind", [MP3, ("adts", "aac"), ("mp2", "mp2"), ("OGG", "VORBIS"), ("ogg", "libopus")]
)
def test_concatenated_streams_are_decoded_completely(kind: tuple[str, str]) -> None:
    assert len(decode(recording(*kind) * 2)) == pytest.approx(4 * RATE_HZ, abs=0.1 * RATE_HZ)


def id3_tag(content: bytes) -> bytes:
    size = bytes(len(content) >> shift & 0x7F for shift in (21, 14, 7, 0))
    return b"ID3\x03\0\0" + size + content


@pytest.mark.parametrize("container", ["WAV", "AIFF", "AU", "CAF", "FLAC", "MP3"])
def test_tag_before_the_audio_is_skipped(container: str) -> None:
    file = sound_file(kind=container, subtype="MPEG_LAYER_III" if container == "MP3" else "PCM_16")
    np.testing.assert_array_equal(decode(id3_tag(bytes(100_000)) + file), decode(file))


@pytest.mark.parametrize(
    ("container", "rate_hz"), [("SDS", RATE_HZ), ("SVX", RATE_HZ), ("WAV", 4_000)]
)
def test_sampler_formats_and_low_rates_decode(container: str, rate_hz: int) -> None:
    samples = noise()[:, 0]
    decoded = decode(sound_file(samples, container, rate_hz=rate_hz))
    np.testing.assert_allclose(decoded[: len(samples)], samples, atol=4e-5)


@pytest.mark.parametrize("picture", [bytes(128), np.random.default_rng(0).bytes(100 << 14)])
def test_tags_around_the_audio_are_not_corrupt_data(picture: bytes) -> None:
    tagged = id3_tag(picture) + recording(*MP3) + b"TAG" + bytes(125)
    np.testing.assert_array_equal(decode(tagged), decode(recording(*MP3)))


def box_positions(names: list[bytes], file: bytes | bytearray) -> list[int]:
    """Return the positions of nested boxes of an MP4 file, the outermost first."""
    positions: list[int] = []
    at = 0
    while len(positions) < len(names):
        if file[at + 4 : at + 8] == names[len(positions)]:
            positions.append(at)
            at += 8
        else:
            at += int.from_bytes(file[at : at + 4])
    return positions


@pytest.mark.parametrize("duration_ms", [2000, 0])  # 0: unknown to the writer
@pytest.mark.parametrize("silence_ms", [0, 500])
def test_edit_list_delays_the_audio(duration_ms: int, silence_ms: int) -> None:
    file = bytearray(recording("ipod", "aac"))
    *parents, at = box_positions([b"moov", b"trak", b"edts", b"elst"], file)
    edits = [(silence_ms, -1)] * bool(silence_ms) + [(duration_ms, 1024)]
    parts = [struct.pack(">IiI", *edit, 1 << 16) for edit in edits]
    file[at : at + 28] = struct.pack(">I8xI", 16 + 12 * len(parts), len(parts)) + b"".join(parts)
    file[at + 4 : at + 8] = b"elst"
    for parent in parents:
        size = int.from_bytes(file[parent : parent + 4]) + 12 * len(parts) - 12
        file[parent : parent + 4] = size.to_bytes(4)
    expected = np.pad(decode(recording("ipod", "aac")), (silence_ms * RATE_HZ // 1000, 0))
    np.testing.assert_array_equal(decode(file), expected)


def test_silence_of_few_bytes_at_the_start_does_not_lengthen_a_recording() -> None:
    samples = np.concatenate([np.zeros((20 * RATE_HZ, 1), np.float32), *[noise()] * 10])
    data = encode_file(samples, "adts", "aac", RATE_HZ)
    with AudioDecoder(io.BytesIO(data), max_duration_s=60.0) as decoder:
        assert decoder.header_duration_s is None
        assert sum(map(len, decoder)) == pytest.approx(40 * RATE_HZ, abs=4_000)


@pytest.mark.parametrize("has_duration", [True, False])
def test_too_long_recording_is_rejected(has_duration: bool) -> None:
    """The decoder rejects a header duration immediately. Otherwise it counts the samples."""
    data = bytearray(recording("FLAC", "PCM_16"))
    if not has_duration:  # clear the 36 bits of STREAMINFO that count the samples
        data[21] &= 0xF0
        data[22:26] = bytes(4)
    with AudioDecoder(io.BytesIO(data), max_duration_s=2.0) as decoder:
        assert decoder.header_duration_s == (2.0 if has_duration else None)
        assert sum(map(len, decoder)) == 2 * RATE_HZ
    open_decoder = partial(AudioDecoder, io.BytesIO(data), max_duration_s=1.5)
    with pytest.raises(ProtocolError, match=r"longer than the limit of 0.025 min") as caught:
        _ = open_decoder() if has_duration else list(open_decoder())
    assert caught.value.code == "audio_too_long"


def test_header_duration_of_0_s_counts_as_unknown() -> None:
    data = bytearray(recording("AIFF", "PCM_16"))
    frames = data.index(b"COMM") + 10
    data[frames : frames + 4] = bytes(4)
    with AudioDecoder(io.BytesIO(data)) as decoder:
        assert decoder.header_duration_s is None
        assert sum(map(len, decoder)) == 2 * RATE_HZ


@pytest.mark.parametrize(("subtype", "reports"), [("FLOAT", True), ("PCM_16", False)])
def test_peak_search_reports_progress(subtype: str, reports: bool) -> None:
    calls: list[None] = []
    data = io.BytesIO(recording("WAV", subtype))
    with AudioDecoder(data, on_progress=lambda: calls.append(None)):
        assert bool(calls) == reports


def test_peak_search_stops_at_the_maximum_duration() -> None:
    class Endless(SampleArray):
        header_duration_s = None  # type: ignore[assignment]

        def __init__(self) -> None:
            self._samples, self.rate_hz = noise(), RATE_HZ

        def frames(self) -> Iterator[tuple[NDArray[np.float32], int]]:
            while True:
                yield from super().frames()

    with pytest.raises(ProtocolError, match="longer than"):
        AudioDecoder(Endless(), max_duration_s=3.0)


@pytest.mark.parametrize(
    ("kind", "gap_s"), [(("FLAC", "PCM_16"), 0.3), (("OGG", "VORBIS"), 1.2), (MP3, 0.5)]
)
def test_corrupt_data_becomes_silence_of_its_length(kind: tuple[str, str], gap_s: float) -> None:
    data, expected = recording(*kind), decode(recording(*kind))
    middle = len(data) // 2
    samples, error = decode_corrupt(data[:middle] + bytes(1000) + data[middle + 1000 :])
    at_s = float(error.removeprefix("the file is corrupt after ").partition(" s: ")[0])
    assert 0.4 < at_s < 1.1
    before = round((at_s - 0.15) * RATE_HZ)
    np.testing.assert_array_equal(samples[:before], expected[:before])
    after, end = round((at_s + gap_s) * RATE_HZ), len(expected)
    np.testing.assert_allclose(samples[after:end], expected[after:], atol=1e-6)


WITH_DURATION = [("WAV", "PCM_16"), ("WAV", "FLOAT"), ("AIFF", "PCM_16"), MP3]


@pytest.mark.parametrize(
    "kind", [*WITH_DURATION, ("FLAC", "PCM_16"), ("adts", "aac"), ("webm", "libopus")]
)
def test_truncated_file_is_reported_as_corrupt(kind: tuple[str, str]) -> None:
    samples, error = decode_corrupt(recording(*kind)[: len(recording(*kind)) * 3 // 4])
    assert len(samples) == pytest.approx(1.5 * RATE_HZ, rel=0.1)
    assert error.startswith("the file is corrupt after 1.")
    if kind in WITH_DURATION:
        assert error.endswith("the header states a duration of 2.0 s")


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x7FFFFFFF, 0x7F000000, 4 * RATE_HZ + 44])
def test_wav_with_a_wrong_length_is_decoded_completely(size: int) -> None:
    """Such headers come from a pipe, or from a recorder that was interrupted."""
    data = bytearray(recording("WAV", "PCM_16"))
    data[4:8] = min(size + 36, 0xFFFFFFFF).to_bytes(4, "little")
    data[40:44] = size.to_bytes(4, "little")
    assert len(decode(data)) == 2 * RATE_HZ


@pytest.mark.parametrize("description", [0, 20_000])
def test_wav_with_24_of_32_bits_decodes(description: int) -> None:
    samples = noise(channels=2)
    data = bytearray(sound_file(samples, "WAVEX", "PCM_32", RATE_HZ))
    at = data.index(b"fmt ") + 8 + 18
    assert data[at : at + 2] == b"\x20\0"
    data[at] = 24
    if description:  # the text of a field recorder precedes the format
        data[12:12] = b"bext" + description.to_bytes(4, "little") + bytes(description)
        data[4:8] = (len(data) - 8).to_bytes(4, "little")
    with AudioDecoder(io.BytesIO(data)) as decoder:
        assert decoder.header_duration_s == 2.0
        np.testing.assert_allclose(np.concatenate(list(decoder)), samples.mean(axis=1), atol=1e-6)


def test_m4a_without_its_end_gets_a_specific_error() -> None:
    with pytest.raises(ProtocolError, match="this M4A, MP4 or MOV file is corrupt or truncated"):
        decode(recording("ipod", "aac")[:-2000])


def test_big_endian_wav_is_rejected() -> None:
    file = io.BytesIO()
    soundfile.write(file, noise(), RATE_HZ, "PCM_16", "BIG", "WAV")
    with pytest.raises(ProtocolError, match="unsupported codec big-endian pcm_s16le"):
        AudioDecoder(file)


PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489")


@pytest.mark.parametrize(
    "data", [PNG, b"no sound", b"#EXTM3U\n#EXTINF:1,\n/etc/passwd\n", b"MATLAB 5.0 MAT-file" * 40]
)
def test_files_without_audio_are_rejected(data: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ProtocolError, match="not a readable audio file"):
        AudioDecoder(io.BytesIO(data))
    assert capfd.readouterr() == ("", "")


def test_invalid_samples_become_silence_and_are_reported() -> None:
    samples = np.full(RATE_HZ, 0.25, np.float32)
    samples[1000], samples[2000], samples[3000] = np.nan, np.inf, 1e20
    file = io.BytesIO(sound_file(samples, "WAV", "FLOAT", RATE_HZ))
    blocks: list[NDArray[np.float32]] = []
    with (
        AudioDecoder(file) as decoder,
        pytest.raises(
            ProtocolError, match="invalid samples replaced by silence: 3, the first at 0.0 s"
        ) as error,
    ):
        blocks.extend(decoder)
    assert error.value.code is ErrorCode.BAD_AUDIO
    samples[[1000, 2000, 3000]] = 0
    np.testing.assert_array_equal(np.concatenate(blocks), samples)


@pytest.mark.parametrize("peak", [0.5, 16.0])
def test_floats_above_full_scale_are_scaled_by_their_peak(peak: float) -> None:
    samples = np.sin(np.arange(RATE_HZ) / 9).astype(np.float32)
    file = io.BytesIO(sound_file(peak * samples, "WAV", "FLOAT", RATE_HZ))
    with AudioDecoder(file) as decoder:
        scaled = np.concatenate(list(decoder))
    np.testing.assert_allclose(scaled, min(peak, 1.0) * samples, atol=1e-3)
