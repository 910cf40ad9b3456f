"""Decoding: what people bring, block by block, and clear refusals of what is not audio."""

import io
import struct
from collections.abc import Iterator
from functools import cache, partial

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from service.audio.decode import AudioDecoder, SampleArray
from service.protocol.errors import ErrorCode, ProtocolError
from tests.service.apps import sound_file
from tests.service.audio.encode import encoded

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
# Containers and codecs; "f4v" is in fragments and has no edit list.
KINDS: list[tuple[str, str]] = [
    *[(kind, "aac") for kind in ("adts", "ipod", "mov", "matroska", "mpegts", "flv", "f4v")],
    *[("mp3", "libmp3lame"), ("avi", "libmp3lame"), ("mp2", "mp2"), ("vob", "mp2")],
    *[("ogg", "libopus"), ("webm", "libopus"), ("ogg", "vorbis"), ("webm", "vorbis")],
    *[("ogg", "flac"), ("ipod", "alac"), ("wv", "wavpack"), ("tta", "tta")],
    *[("matroska", "ac3"), ("asf", "wmav2")],
]
FILMS = ("avi", "mov", "matroska", "mpegts")  # but for the first, sound may begin later
# That the encoder may move a click by. FFmpeg skips what Microsoft's adds; its own adds less.
MOST_MS = {"mp2": 11, "wmav2": 47}


def noise(channels: int = 1) -> NDArray[np.float32]:
    shape = 2 * RATE_HZ, channels
    return np.random.default_rng(0).uniform(-0.3, 0.3, shape).astype(np.float32)


def decoded(data: bytes | bytearray) -> NDArray[np.float32]:
    with AudioDecoder(io.BytesIO(data)) as decoder:
        return np.concatenate(list(decoder))


def damaged(data: bytes) -> tuple[NDArray[np.float32], str]:
    """Return the decoded samples and the message of the error at the end."""
    blocks: list[NDArray[np.float32]] = []
    with AudioDecoder(io.BytesIO(data)) as decoder, pytest.raises(ProtocolError) as caught:
        blocks.extend(decoder)
    assert caught.value.code == "undecodable"
    return np.concatenate(blocks), str(caught.value)


@pytest.mark.parametrize(("container", "subtype"), LOSSLESS + LOSSY)
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_are_those_of_libsndfile(container: str, subtype: str, channels: int) -> None:
    data = sound_file(noise(channels=channels), container, subtype, RATE_HZ)
    whole, _ = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    atol = 0.0 if (container, subtype) in LOSSLESS else 1e-5
    np.testing.assert_allclose(decoded(data), whole.mean(axis=1), rtol=0, atol=atol)


@pytest.mark.parametrize("container", ["WAV", "FLAC", "OGG"])
@pytest.mark.parametrize("title", ["", "Ωμέγα", "Caf!", "x" * 300])
def test_titles_are_those_of_the_tags(container: str, title: str) -> None:
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", RATE_HZ, 1, format=container) as sound:
        if title:
            sound.title = title
        sound.write(noise())
    data = file.getvalue()
    with AudioDecoder(io.BytesIO(data)) as decoder:
        assert decoder.title == title[:200]
    if title == "Caf!" and container != "OGG":  # its pages have checksums
        with AudioDecoder(io.BytesIO(data.replace(b"Caf!", b"Caf\xe9"))) as decoder:
            assert decoder.title == "Café"


@pytest.mark.parametrize("channels", [1, 3, 6, 64])
def test_blocks_are_short(channels: int) -> None:
    sound = noise()[:, :1] * np.linspace(0.5, 1, channels, dtype=np.float32)
    file = io.BytesIO(sound_file(sound, "WAV", "FLOAT", RATE_HZ))
    with AudioDecoder(file) as decoder:
        assert (decoder.audio.sample_rate_hz, decoder.header_duration_s) == (RATE_HZ, 2.0)
        blocks = list(decoder)
    assert not file.closed
    assert max(map(len, blocks)) < 10_000
    np.testing.assert_allclose(np.concatenate(blocks), sound.mean(axis=1), atol=1e-6)


@pytest.mark.parametrize(
    ("container", "codec", "video", "begin"),
    [(*kind, "", 0) for kind in KINDS]
    + [(*kind, "mpeg4", 0) for kind in KINDS if kind[0] in FILMS]
    + [(*kind, "mpeg4", RATE_HZ) for kind in KINDS if kind[0] in FILMS[1:]],
)
def test_a_click_stays_in_its_place(container: str, codec: str, video: str, begin: int) -> None:
    sound = np.zeros((2 * RATE_HZ, 2), np.float32)
    at = np.arange(240)
    sound[RATE_HZ : RATE_HZ + 240] = (0.8 * np.exp(-at / 24) * np.sin(0.7 * at))[:, None]
    heard = decoded(encoded(sound, container, codec, RATE_HZ, video, begin))[begin:]
    moved = np.argmax(np.abs(heard)) - np.argmax(np.abs(sound[:, 0]))
    assert abs(1000 * moved / RATE_HZ) <= MOST_MS.get(codec, 2)
    assert len(heard) == pytest.approx(2 * RATE_HZ, abs=4_000)


def test_a_film_without_sound_is_no_audio() -> None:
    import av

    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as out:
        stream = out.add_stream("mpeg4", rate=10, width=64, height=64, pix_fmt="yuv420p")
        picture = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8))
        out.mux([*stream.encode(picture), *stream.encode(None)])
    with pytest.raises(ProtocolError, match="the file has no sound"):
        AudioDecoder(io.BytesIO(file.getvalue()))


@cache
def recording(container: str, codec: str) -> bytes:
    """Return two seconds of noise, by libsndfile if it knows the format, else by FFmpeg."""
    if container.isupper():
        return sound_file(noise(), container, codec, RATE_HZ)
    return encoded(noise(channels=2), container, codec, RATE_HZ)


JOINED = [MP3, ("adts", "aac"), ("mp2", "mp2"), ("OGG", "VORBIS"), ("ogg", "libopus")]


@pytest.mark.parametrize("kind", JOINED)
def test_streams_that_were_joined_are_read_to_the_end(kind: tuple[str, str]) -> None:
    assert len(decoded(recording(*kind) * 2)) == pytest.approx(4 * RATE_HZ, abs=0.1 * RATE_HZ)


def id3_tag(size: int) -> bytes:
    return b"ID3\x03\0\0" + bytes(size >> shift & 0x7F for shift in (21, 14, 7, 0)) + bytes(size)


@pytest.mark.parametrize("container", ["WAV", "AIFF", "AU", "CAF", "FLAC", "MP3"])
@pytest.mark.parametrize(
    "headers",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\n\r\n",
        id3_tag(100_000),
        b"HTTP/1.0 200 OK\r\n\r\n" + id3_tag(50),
    ],
)
def test_headers_before_the_sound_are_skipped(headers: bytes, container: str) -> None:
    file = sound_file(kind=container, subtype="MPEG_LAYER_III" if container == "MP3" else "PCM_16")
    np.testing.assert_array_equal(decoded(headers + file), decoded(file))


@pytest.mark.parametrize("container", ["SDS", "SVX"])
def test_samplers_have_one_channel(container: str) -> None:
    samples = noise()[:, 0]
    found = decoded(sound_file(samples, container, rate_hz=RATE_HZ))
    np.testing.assert_allclose(found[: len(samples)], samples, atol=4e-5)


def test_a_recording_at_4_khz() -> None:
    samples = noise()[:, 0]
    np.testing.assert_allclose(decoded(sound_file(samples, rate_hz=4_000)), samples, atol=4e-5)


@pytest.mark.parametrize("picture", [bytes(128), np.random.default_rng(0).bytes(100 << 14)])
def test_tags_before_and_after_the_sound_are_no_damage(picture: bytes) -> None:
    size = bytes(len(picture) >> shift & 127 for shift in (21, 14, 7, 0))
    one = b"ID3\x04\0\0" + size + picture + recording(*MP3) + b"TAG" + bytes(125)
    np.testing.assert_array_equal(decoded(one), decoded(recording(*MP3)))


def boxes(names: list[bytes], file: bytes | bytearray) -> list[int]:
    """Return the positions of nested boxes of an MP4 file, the outermost first."""
    found: list[int] = []
    at = 0
    while len(found) < len(names):
        if file[at + 4 : at + 8] == names[len(found)]:
            found.append(at)
            at += 8
        else:
            at += int.from_bytes(file[at : at + 4])
    return found


@pytest.mark.parametrize("all_of_it", [2000, 0])  # in ms; 0 if its writer did not know
@pytest.mark.parametrize("silence", [0, 500])
def test_an_edit_list_moves_the_sound(all_of_it: int, silence: int) -> None:
    file = bytearray(recording("ipod", "aac"))
    *parents, at = boxes([b"moov", b"trak", b"edts", b"elst"], file)
    edits = [(silence, -1)] * bool(silence) + [(all_of_it, 1024)]
    parts = [struct.pack(">IiI", *edit, 1 << 16) for edit in edits]
    file[at : at + 28] = struct.pack(">I8xI", 16 + 12 * len(parts), len(parts)) + b"".join(parts)
    file[at + 4 : at + 8] = b"elst"
    for parent in parents:
        size = int.from_bytes(file[parent : parent + 4]) + 12 * len(parts) - 12
        file[parent : parent + 4] = size.to_bytes(4)
    heard, sound = decoded(file), decoded(recording("ipod", "aac"))
    np.testing.assert_array_equal(heard, np.pad(sound, (silence * RATE_HZ // 1000, 0)))


def test_samples_in_memory() -> None:
    sound = noise(channels=2)
    with AudioDecoder(SampleArray(sound, RATE_HZ)) as decoder:
        assert decoder.header_duration_s == len(sound) / RATE_HZ
        decoded = np.concatenate(list(decoder))
    np.testing.assert_array_equal(decoded, sound.mean(axis=1))
    with pytest.raises(ProtocolError, match="no audio"):
        AudioDecoder(SampleArray(sound[:0], RATE_HZ))


@pytest.mark.parametrize("stated", [True, False])
def test_what_is_too_long_is_refused_at_once_or_once_it_was_counted(stated: bool) -> None:
    data = bytearray(recording("FLAC", "PCM_16"))
    if not stated:  # the 36 bits of STREAMINFO that count the samples
        data[21] &= 0xF0
        data[22:26] = bytes(4)
    with AudioDecoder(io.BytesIO(data), max_duration_s=2.0) as decoder:
        assert decoder.header_duration_s == (2.0 if stated else None)
        assert sum(map(len, decoder)) == 2 * RATE_HZ
    opened = partial(AudioDecoder, io.BytesIO(data), max_duration_s=1.5)
    with pytest.raises(ProtocolError, match=r"longer than 0.025 minutes") as caught:
        _ = opened() if stated else list(opened())
    assert caught.value.code == "audio_too_long"


def test_the_search_for_the_peak_stops_at_the_maximum_duration() -> None:
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
def test_what_is_damaged_is_silent_and_the_rest_in_its_place(
    kind: tuple[str, str], gap_s: float
) -> None:
    data, whole = recording(*kind), decoded(recording(*kind))
    middle = len(data) // 2
    heard, said = damaged(data[:middle] + bytes(1000) + data[middle + 1000 :])
    at_s = float(said.removeprefix("the file is corrupt after ").partition(" s: ")[0])
    assert 0.4 < at_s < 1.1
    before = round((at_s - 0.15) * RATE_HZ)
    np.testing.assert_array_equal(heard[:before], whole[:before])
    if kind[0] != "MP3":  # its frames have no time
        after = round((at_s + gap_s) * RATE_HZ)
        np.testing.assert_allclose(heard[after:], whole[after:], atol=1e-6)


CUT = [("WAV", "PCM_16"), ("WAV", "FLOAT"), ("AIFF", "PCM_16"), MP3]


@pytest.mark.parametrize("kind", [*CUT, ("FLAC", "PCM_16"), ("adts", "aac"), ("webm", "libopus")])
def test_a_file_that_was_cut_off_is_damaged(kind: tuple[str, str]) -> None:
    heard, said = damaged(recording(*kind)[: len(recording(*kind)) * 3 // 4])
    assert len(heard) == pytest.approx(1.5 * RATE_HZ, rel=0.1)
    assert said.startswith("the file is corrupt after 1.")
    if kind in CUT:
        assert said.endswith("the header states 2.0 s")


@pytest.mark.parametrize("stated", [0, 0xFFFFFFFF, 0x7FFFFFFF, 0x7F000000, 4 * RATE_HZ + 44])
def test_a_wav_that_does_not_know_its_length_is_whole(stated: int) -> None:
    """Its header was written to a pipe, or by a recorder that was interrupted."""
    data = bytearray(recording("WAV", "PCM_16"))
    data[4:8] = min(stated + 36, 0xFFFFFFFF).to_bytes(4, "little")
    data[40:44] = stated.to_bytes(4, "little")
    assert len(decoded(bytes(data))) == 2 * RATE_HZ


def test_a_wav_with_24_of_32_bits() -> None:
    sound = noise(channels=2)
    data = bytearray(sound_file(sound, "WAVEX", "PCM_32", RATE_HZ))
    at = data.index(b"fmt ") + 8 + 18
    assert data[at : at + 2] == b"\x20\0"
    data[at] = 24
    with AudioDecoder(io.BytesIO(data)) as decoder:
        assert decoder.header_duration_s == 2.0
        np.testing.assert_allclose(np.concatenate(list(decoder)), sound.mean(axis=1), atol=1e-6)


def test_an_m4a_without_its_end_is_named() -> None:
    with pytest.raises(ProtocolError, match="the end of this M4A, MP4 or MOV file is missing"):
        decoded(recording("ipod", "aac")[:-2000])


def test_a_big_endian_wav_is_refused() -> None:
    file = io.BytesIO()
    soundfile.write(file, noise(), RATE_HZ, "PCM_16", "BIG", "WAV")
    with pytest.raises(ProtocolError, match="unsupported codec big-endian pcm_s16le"):
        AudioDecoder(file)


PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489")


@pytest.mark.parametrize(
    "data",
    [PNG, b"no sound", b"#EXTM3U\n#EXTINF:1,\n/etc/passwd\n", b"MATLAB 5.0 MAT-file" * 40],
)
def test_what_is_no_audio_is_refused(data: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ProtocolError, match="not a readable audio file"):
        AudioDecoder(io.BytesIO(data))
    assert capfd.readouterr() == ("", "")


def test_invalid_samples_are_silenced_and_reported() -> None:
    samples = np.full(RATE_HZ, 0.25, np.float32)
    samples[1000], samples[2000], samples[3000] = np.nan, np.inf, 1e20
    file = io.BytesIO()
    soundfile.write(file, samples, RATE_HZ, "FLOAT", format="WAV")
    blocks: list[NDArray[np.float32]] = []
    with (
        AudioDecoder(file) as decoder,
        pytest.raises(
            ProtocolError, match="3 invalid samples replaced by silence, the first at 0.0 s"
        ) as error,
    ):
        blocks.extend(decoder)
    assert error.value.code is ErrorCode.BAD_AUDIO
    samples[[1000, 2000, 3000]] = 0
    np.testing.assert_array_equal(np.concatenate(blocks), samples)


@pytest.mark.parametrize("peak", [0.5, 16.0])
def test_floats_above_full_scale_are_scaled_by_their_peak(peak: float) -> None:
    samples = np.sin(np.arange(RATE_HZ) / 9).astype(np.float32)
    file = io.BytesIO()
    soundfile.write(file, peak * samples, RATE_HZ, "FLOAT", format="WAV")
    with AudioDecoder(file) as decoder:
        decoded = np.concatenate(list(decoder))
    np.testing.assert_allclose(decoded, min(peak, 1.0) * samples, atol=1e-3)
