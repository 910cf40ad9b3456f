"""Tests of the PCM decoder and the downmix to mono."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.audio.pcm import BLOCKS_PER_S, MAX_AMPLITUDE, BadAudioError, Downmix, PcmDecoder
from service.protocol.options import AudioFormat, Encoding, Mix

Sound = NDArray[np.float32]
RATE_HZ = 8_000
BLOCK = RATE_HZ // BLOCKS_PER_S
SOUND = np.random.default_rng(1).uniform(-0.3, 0.3, RATE_HZ).astype(np.float32)
OTHER = np.random.default_rng(2).uniform(-0.3, 0.3, RATE_HZ).astype(np.float32)
SILENCE = np.zeros_like(SOUND)


def stereo(*seconds: tuple[Sound, Sound]) -> Sound:
    return np.concatenate([np.stack(pair, axis=1) for pair in seconds])


@pytest.mark.parametrize(
    ("left", "right", "expected", "mix"),
    [
        (SOUND, OTHER, (SOUND + OTHER) / 2, Mix.MEAN),
        (SOUND, SOUND, SOUND, Mix.MEAN),
        (SOUND, SILENCE, SOUND, Mix.SUM),
        (SILENCE, SOUND, SOUND, Mix.SUM),
        (SOUND, 1e-4 * OTHER, SOUND, Mix.SUM),  # noise of an open input
        (SOUND, SILENCE + np.float32(0.05), SOUND + np.float32(0.05), Mix.SUM),  # offset
        (SOUND + np.float32(0.05), -0.9 * SOUND, SOUND + np.float32(0.05), Mix.LEFT),
        (SOUND, -SOUND, SOUND, Mix.LEFT),
        (-0.8 * SOUND, SOUND, SOUND, Mix.RIGHT),
        (SILENCE, SILENCE, SILENCE, Mix.MEAN),
    ],
)
def test_downmix_selects_the_best_mix(left: Sound, right: Sound, expected: Sound, mix: Mix) -> None:
    downmix = Downmix(RATE_HZ)
    mono = downmix(stereo((left, right)))
    np.testing.assert_allclose(mono[2 * BLOCK :], expected[2 * BLOCK :], atol=1e-4)
    assert downmix.mix is mix
    assert downmix.reported_mix is mix


@pytest.mark.parametrize("channels", [3, 6, 64])
@pytest.mark.parametrize("active", [1, 2])
def test_downmix_ignores_silent_channels(channels: int, active: int) -> None:
    sound = np.stack([SOUND] * active + [1e-4 * OTHER] * (channels - active), axis=1)
    mono = Downmix(RATE_HZ)(sound)
    np.testing.assert_allclose(mono[2 * BLOCK :], SOUND[2 * BLOCK :], atol=3e-3)
    # A channel that starts later is mixed immediately, and affects the gain from the next block on.
    later = np.concatenate([sound, np.repeat(SOUND[:, None], channels, axis=1)])
    mono = Downmix(RATE_HZ)(later)[RATE_HZ:]
    np.testing.assert_allclose(mono[2 * BLOCK :], SOUND[2 * BLOCK :], atol=1e-6)


@pytest.mark.parametrize("silence", [0, 7, 3 * BLOCK + 7])
@pytest.mark.parametrize("others", [[SILENCE] * 5, [-SOUND], [SOUND], [-SOUND, SILENCE]])
def test_start_of_a_recording_is_not_dropped(silence: int, others: list[Sound]) -> None:
    sound = np.pad(np.stack([SOUND, *others], axis=1), ((silence, 0), (0, 0)))
    downmix = Downmix(RATE_HZ, recording=True)
    parts = [downmix(part) for part in np.array_split(sound, 13)]
    mono = np.concatenate([*parts, downmix.finish()])
    np.testing.assert_allclose(mono, np.pad(SOUND, (silence, 0)), atol=1e-6)


def test_silence_preserves_the_mix_and_new_channels_start_immediately() -> None:
    sound = stereo((SOUND, -SOUND), (SILENCE, SILENCE), (SOUND, -SOUND))
    assert np.array_equal(Downmix(RATE_HZ)(sound)[2 * RATE_HZ :], SOUND)
    sound = stereo((SOUND, SILENCE), (SOUND, OTHER), (SILENCE, OTHER), (OTHER, OTHER))
    mono = Downmix(RATE_HZ)(sound)
    np.testing.assert_allclose(mono[RATE_HZ:][:BLOCK], (SOUND + OTHER)[:BLOCK], atol=1e-6)
    np.testing.assert_allclose(mono[-RATE_HZ // 2 :], OTHER[-RATE_HZ // 2 :], atol=1e-6)


def test_change_of_mix_causes_no_step() -> None:
    tone = np.sin(np.arange(2 * RATE_HZ) / 5).astype(np.float32)
    for right in (0 * tone, -tone):
        mono = Downmix(RATE_HZ)(np.stack([tone, right], axis=1))
        assert np.abs(np.diff(mono, 2)).max() <= 1.05 * np.abs(np.diff(tone, 2)).max()


@st.composite
def stereo_signals(draw: st.DrawFn) -> Sound:
    """Draw six sections whose two channels are equal, inverted, silent or different."""
    level, length = st.sampled_from([0.0, 1e-4, 0.5, -0.5, 80.0]), BLOCK * 3 // 2
    noise = np.random.default_rng(draw(st.integers(0, 99))).uniform(-1, 1, (2, 6 * length))
    mixed = [
        np.stack([draw(level) * noise[0], draw(level) * noise[draw(st.integers(0, 1))]], axis=1)
        for _ in range(6)
    ]
    sections = [mix[n * length : (n + 1) * length] for n, mix in enumerate(mixed)]
    return np.concatenate(sections).astype(np.float32)


@settings(max_examples=30)
@given(stereo_signals(), st.lists(st.integers(0, 2_000), max_size=12), st.integers(0, 7_000))
def test_chunks_and_restarts_change_no_bit(
    sound: Sound, sizes: list[int], first_needed: int
) -> None:
    downmix, chunked = Downmix(RATE_HZ), Downmix(RATE_HZ)
    expected = downmix(sound)
    chunks = np.split(sound, np.minimum(np.cumsum(sizes), len(sound)).astype(int))
    np.testing.assert_array_equal(np.concatenate([chunked(chunk) for chunk in chunks]), expected)
    start, mix = downmix.restart_position(first_needed)
    restarted = Downmix(RATE_HZ, start, mix)(sound[start:])
    np.testing.assert_array_equal(restarted[first_needed - start :], expected[first_needed:])


def audio_format(encoding: Encoding, channels: int) -> AudioFormat:
    return AudioFormat(encoding=encoding, sample_rate_hz=44_100, channels=channels)


WIRE = {
    Encoding.PCM_S16LE: ("<i2", st.integers(-32_768, 32_767), 32_768),
    Encoding.PCM_F32LE: ("<f4", st.floats(-1, 1, width=32), 1),
}


@pytest.mark.parametrize("encoding", Encoding)
@given(data=st.data(), channels=st.sampled_from([1, 2]))
def test_chunked_bytes_decode_to_the_channel_mean(
    encoding: Encoding, data: st.DataObject, channels: int
) -> None:
    dtype, numbers, scale = WIRE[encoding]
    values = np.array(data.draw(st.lists(numbers, max_size=60)), dtype)
    cuts = sorted(data.draw(st.lists(st.integers(0, 480), max_size=30)))
    complete = len(values) - len(values) % channels
    expected = values[:complete].astype(np.float64).reshape(-1, channels).mean(axis=1) / scale
    decoder = PcmDecoder(audio_format(encoding, channels))
    chunks = [values.tobytes()[a:b] for a, b in pairwise([0, *cuts, None])]
    out = np.concatenate([decoder.decode(chunk) for chunk in chunks])
    np.testing.assert_allclose(out, expected, atol=1e-7)
    assert out.dtype == np.float32
    received = encoding.sample_bytes * (len(values) - complete)
    assert (decoder.incomplete is None) == (not received)
    if decoder.incomplete is not None:
        size = encoding.sample_bytes * channels
        assert str(decoder.incomplete).endswith(f"received {received} of {size} bytes")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2 * MAX_AMPLITUDE])
@pytest.mark.parametrize("channels", [1, 2])
def test_invalid_sample_ends_decoding_after_earlier_samples(bad: float, channels: int) -> None:
    decoder = PcmDecoder(audio_format(Encoding.PCM_F32LE, channels))
    decoder.decode(np.zeros(10 * channels, "<f4").tobytes())
    values = np.full((8, channels), 0.25, "<f4")
    values[5, -1] = bad
    with pytest.raises(BadAudioError, match="sample 15 is") as caught:
        decoder.decode(values.tobytes() + b"\0")
    assert caught.value.dropped == 3
    assert decoder.incomplete is None
    np.testing.assert_array_equal(caught.value.samples, np.full(5, 0.25, np.float32))
