"""Decoding: every format block by block, and clear refusals of what is not audio."""

import io
import tempfile
import threading

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from service.audio import decode
from service.audio.decode import AudioDecoder
from service.protocol.faults import ProtocolError
from tests.fakes import play
from tests.service.apps import sound_file

FORMATS = [
    ("WAV", "PCM_16"),
    ("WAV", "PCM_24"),
    ("WAV", "FLOAT"),
    ("FLAC", "PCM_16"),
    ("OGG", "VORBIS"),
    ("OGG", "OPUS"),
    ("MP3", "MPEG_LAYER_III"),
]
RATE_HZ = 48_000


def tone(seconds: float = 2.0) -> NDArray[np.float32]:
    return play([(69, 0.1, seconds - 0.1)], seconds, RATE_HZ)


@pytest.mark.parametrize(
    ("container", "subtype", "channels"),
    [*((*kind, n) for kind in FORMATS for n in (1, 2)), *(("WAV", "FLOAT", n) for n in (3, 6, 64))],
)
def test_blocks_are_the_file(
    monkeypatch: pytest.MonkeyPatch, container: str, subtype: str, channels: int
) -> None:
    monkeypatch.setattr(decode, "_BLOCK_SAMPLES", 5_000 * channels)
    sound = tone()[:, None] * np.linspace(0.5, 1, channels, dtype=np.float32)
    data = sound_file(sound, container, subtype, RATE_HZ)
    whole, _ = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    with tempfile.SpooledTemporaryFile(max_size=1_000) as file:
        file.write(data)
        file.seek(0)
        with AudioDecoder(file) as decoder:  # type: ignore[arg-type]
            assert decoder.audio.sample_rate_hz == RATE_HZ
            assert decoder.stated_duration_s == pytest.approx(2.0, abs=0.05)
            blocks = list(decoder)
        assert not file.closed
    assert max(map(len, blocks)) <= 5_000
    np.testing.assert_allclose(np.concatenate(blocks), whole.mean(axis=1), atol=1e-6)


def test_a_header_that_says_too_much_is_refused_at_once() -> None:
    data = sound_file(tone(), "FLAC", "PCM_16", RATE_HZ)
    with pytest.raises(ProtocolError, match=r"longer than 1.5 seconds") as caught:
        AudioDecoder(io.BytesIO(data), max_duration_s=1.5)
    assert caught.value.code == "audio_too_long"
    with AudioDecoder(io.BytesIO(data), max_duration_s=2.0) as decoder:
        assert sum(map(len, decoder)) == 2 * RATE_HZ


def test_a_header_without_a_length_is_counted_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "_BLOCK_SAMPLES", 5_000)
    data = bytearray(sound_file(tone(), "FLAC", "PCM_16", RATE_HZ))
    data[21] &= 0xF0  # the 36 bits of STREAMINFO that count the samples: 0 means unknown
    data[22:26] = bytes(4)
    with AudioDecoder(io.BytesIO(data)) as decoder:
        assert decoder.stated_duration_s is None
        assert sum(map(len, decoder)) == 2 * RATE_HZ
    with (
        AudioDecoder(io.BytesIO(data), max_duration_s=1.5) as decoder,
        pytest.raises(ProtocolError, match=r"longer than 1.5 seconds"),
    ):
        list(decoder)


def test_a_damaged_file_gives_what_lies_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "_BLOCK_SAMPLES", 5_000)
    data = sound_file(tone(), "FLAC", "PCM_16", RATE_HZ)
    decoder = AudioDecoder(io.BytesIO(data[: len(data) // 2]))
    blocks: list[NDArray[np.float32]] = []
    with pytest.raises(ProtocolError, match=r"damaged after 0.\d s: .*lost sync"):
        blocks.extend(decoder)
    got = np.concatenate(blocks)
    assert len(got) > RATE_HZ // 2
    np.testing.assert_allclose(got, tone()[: len(got)], atol=1e-4)


@pytest.mark.parametrize(
    ("container", "subtype", "before"),
    [
        ("WAV", "PCM_16", b""),
        ("WAV", "FLOAT", b""),
        ("AIFF", "PCM_16", b""),
        ("MP3", "MPEG_LAYER_III", b""),
        ("MP3", "MPEG_LAYER_III", b"ID3\x04\0\0\0\0\1\0" + bytes(128)),
    ],
)
@pytest.mark.parametrize("channels", [1, 2])
def test_a_file_that_was_cut_off_is_damaged(
    container: str, subtype: str, before: bytes, channels: int
) -> None:
    sound = np.repeat(tone()[:, None], channels, axis=1)
    data = before + sound_file(sound, container, subtype, RATE_HZ)
    decoder = AudioDecoder(io.BytesIO(data[: len(data) * 3 // 4]))
    blocks: list[NDArray[np.float32]] = []
    with pytest.raises(ProtocolError, match=r"damaged after 1.[45] s: its header states 2.0 s"):
        blocks.extend(decoder)
    assert sum(map(len, blocks)) == pytest.approx(1.5 * RATE_HZ, rel=0.1)


@pytest.mark.parametrize("stated", [0xFFFFFFFF, 0x7FFFFFFF, 0x7F000000, 4 * RATE_HZ + 44])
def test_a_wav_from_a_pipe_is_whole(stated: int) -> None:
    """Its header was written before its length was known."""
    data = bytearray(sound_file(tone(), "WAV", "PCM_16", RATE_HZ))
    data[40:44] = stated.to_bytes(4, "little")
    with AudioDecoder(io.BytesIO(data)) as decoder:
        assert sum(map(len, decoder)) == 2 * RATE_HZ


def test_a_wav_whose_recorder_was_interrupted_is_no_empty_recording() -> None:
    data = bytearray(sound_file(tone(), "WAV", "PCM_16", RATE_HZ))
    data[4:8], data[40:44] = (36).to_bytes(4, "little"), bytes(4)
    with pytest.raises(ProtocolError, match="as if its recorder had been interrupted"):
        AudioDecoder(io.BytesIO(data))


def test_the_guessed_length_of_an_mp3_is_no_promise() -> None:
    """Without the first frame, which counts the others, it is guessed from a soft beginning's."""
    sound = np.zeros(10 * RATE_HZ)
    sound[-RATE_HZ:] = np.random.default_rng(0).uniform(-0.5, 0.5, RATE_HZ)
    memory = io.BytesIO()
    how = {"format": "MP3", "subtype": "MPEG_LAYER_III", "bitrate_mode": "VARIABLE"}
    soundfile.write(memory, sound, RATE_HZ, **how)
    data = memory.getvalue()
    with AudioDecoder(io.BytesIO(data[data.index(data[:2], 2) :])) as decoder:
        heard_s = sum(map(len, decoder)) / RATE_HZ
        assert decoder.stated_duration_s > heard_s + 1  # type: ignore[operator]


def test_closing_waits_for_a_read_and_reading_after_it_gives_nothing() -> None:
    decoder = AudioDecoder(io.BytesIO(sound_file(tone(), "WAV", "PCM_16", RATE_HZ)))
    reader = threading.Thread(target=lambda: list(decoder))
    reader.start()
    decoder.close()
    reader.join(60)
    assert not reader.is_alive()
    assert decoder.read() is None
    decoder.close()
