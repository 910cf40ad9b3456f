"""PCM bytes to mono samples, whatever the chunks: nothing is lost to a dead or reversed channel."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.audio.pcm import (
    BLOCKS_PER_S,
    MAX_AMPLITUDE,
    BadAudioError,
    Downmix,
    PcmDecoder,
)
from service.protocol.options import AudioFormat, Encoding, Mix

RATE_HZ = 8_000
BLOCK = RATE_HZ // BLOCKS_PER_S
SECOND = np.random.default_rng(1).uniform(-0.3, 0.3, RATE_HZ).astype(np.float32)
OTHER = np.random.default_rng(2).uniform(-0.3, 0.3, RATE_HZ).astype(np.float32)
NOTHING = np.zeros_like(SECOND)


def stereo(*seconds: tuple[NDArray[np.float32], NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.concatenate([np.stack(pair, axis=1) for pair in seconds])


@pytest.mark.parametrize(
    ("left", "right", "heard", "mix"),
    [
        (SECOND, OTHER, (SECOND + OTHER) / 2, Mix.MEAN),
        (SECOND, SECOND, SECOND, Mix.MEAN),
        (SECOND, NOTHING, SECOND, Mix.SUM),
        (NOTHING, SECOND, SECOND, Mix.SUM),
        (SECOND, 1e-4 * OTHER, SECOND, Mix.SUM),  # the noise of an open input
        (SECOND, NOTHING + np.float32(0.05), SECOND + np.float32(0.05), Mix.SUM),  # its offset
        (SECOND + np.float32(0.05), -0.9 * SECOND, SECOND + np.float32(0.05), Mix.LEFT),
        (SECOND, -SECOND, SECOND, Mix.LEFT),
        (-0.8 * SECOND, SECOND, SECOND, Mix.RIGHT),
        (NOTHING, NOTHING, NOTHING, Mix.MEAN),
    ],
)
def test_what_is_heard_after_two_blocks(
    left: NDArray[np.float32], right: NDArray[np.float32], heard: NDArray[np.float32], mix: Mix
) -> None:
    downmix = Downmix(RATE_HZ)
    mono = downmix(stereo((left, right)))
    np.testing.assert_allclose(mono[2 * BLOCK :], heard[2 * BLOCK :], atol=1e-4)
    assert downmix.mix is mix
    assert downmix.reported_mix is mix


@pytest.mark.parametrize("channels", [3, 6, 64])
@pytest.mark.parametrize("live", [1, 2])
def test_of_many_channels_the_silent_do_not_count(channels: int, live: int) -> None:
    sound = np.stack([SECOND] * live + [1e-4 * OTHER] * (channels - live), axis=1)
    mono = Downmix(RATE_HZ)(sound)
    np.testing.assert_allclose(mono[2 * BLOCK :], SECOND[2 * BLOCK :], atol=3e-3)
    # A channel that enters is heard at once, and counts from the next block on.
    later = np.concatenate([sound, np.repeat(SECOND[:, None], channels, axis=1)])
    mono = Downmix(RATE_HZ)(later)[RATE_HZ:]
    np.testing.assert_allclose(mono[2 * BLOCK :], SECOND[2 * BLOCK :], atol=1e-6)


@pytest.mark.parametrize("silence", [0, 7, 3 * BLOCK + 7])
@pytest.mark.parametrize("others", [[NOTHING] * 5, [-SECOND], [SECOND], [-SECOND, NOTHING]])
def test_the_beginning_of_a_recording_is_not_lost(
    silence: int, others: list[NDArray[np.float32]]
) -> None:
    sound = np.pad(np.stack([SECOND, *others], axis=1), ((silence, 0), (0, 0)))
    downmix = Downmix(RATE_HZ, recording=True)
    parts = [downmix(part) for part in np.array_split(sound, 13)]
    mono = np.concatenate([*parts, downmix.finish()])
    np.testing.assert_allclose(mono, np.pad(SECOND, (silence, 0)), atol=1e-6)


def test_a_silence_changes_nothing_and_a_channel_that_enters_is_heard_at_once() -> None:
    sound = stereo((SECOND, -SECOND), (NOTHING, NOTHING), (SECOND, -SECOND))
    assert np.array_equal(Downmix(RATE_HZ)(sound)[2 * RATE_HZ :], SECOND)
    sound = stereo((SECOND, NOTHING), (SECOND, OTHER), (NOTHING, OTHER), (OTHER, OTHER))
    mono = Downmix(RATE_HZ)(sound)
    np.testing.assert_allclose(mono[RATE_HZ:][:BLOCK], (SECOND + OTHER)[:BLOCK], atol=1e-6)
    np.testing.assert_allclose(mono[-RATE_HZ // 2 :], OTHER[-RATE_HZ // 2 :], atol=1e-6)


def test_a_change_makes_no_step() -> None:
    tone = np.sin(np.arange(2 * RATE_HZ) / 5).astype(np.float32)
    for right in (0 * tone, -tone):
        mono = Downmix(RATE_HZ)(np.stack([tone, right], axis=1))
        assert np.abs(np.diff(mono, 2)).max() <= 1.05 * np.abs(np.diff(tone, 2)).max()


@st.composite
def sounds(draw: st.DrawFn) -> NDArray[np.float32]:
    """Two channels that are alike, reversed, dead or different, from time to time."""
    level, part = st.sampled_from([0.0, 1e-4, 0.5, -0.5, 80.0]), BLOCK * 3 // 2
    noise = np.random.default_rng(draw(st.integers(0, 99))).uniform(-1, 1, (2, 6 * part))
    mixed = [
        np.stack([draw(level) * noise[0], draw(level) * noise[draw(st.integers(0, 1))]], axis=1)
        for _ in range(6)
    ]
    parts = [one[at * part : (at + 1) * part] for at, one in enumerate(mixed)]
    return np.concatenate(parts).astype(np.float32)


@settings(max_examples=30, deadline=None)
@given(sounds(), st.lists(st.integers(0, 2_000), max_size=12), st.integers(0, 7_000))
def test_neither_chunks_nor_a_new_start_change_a_bit(
    sound: NDArray[np.float32], cuts: list[int], needed: int
) -> None:
    downmix = Downmix(RATE_HZ)
    whole = downmix(sound)
    other = Downmix(RATE_HZ)
    parts = np.split(sound, np.minimum(np.cumsum(cuts), len(sound)).astype(int))
    np.testing.assert_array_equal(np.concatenate([other(part) for part in parts]), whole)
    begin, mix = downmix.restart_position(needed)
    again = Downmix(RATE_HZ, begin, mix)(sound[begin:])
    np.testing.assert_array_equal(again[needed - begin :], whole[needed:])


def audio(encoding: Encoding, channels: int) -> AudioFormat:
    return AudioFormat(encoding=encoding, sample_rate_hz=44_100, channels=channels)


WIRE = {
    Encoding.PCM_S16LE: ("<i2", st.integers(-32_768, 32_767), 32_768),
    Encoding.PCM_F32LE: ("<f4", st.floats(-1, 1, width=32), 1),
}


@pytest.mark.parametrize("encoding", Encoding)
@given(data=st.data(), channels=st.sampled_from([1, 2]))
def test_any_chunks_give_the_mean_of_the_channels(
    encoding: Encoding, data: st.DataObject, channels: int
) -> None:
    dtype, numbers, scale = WIRE[encoding]
    values = np.array(data.draw(st.lists(numbers, max_size=60)), dtype)
    cuts = sorted(data.draw(st.lists(st.integers(0, 480), max_size=30)))
    whole = len(values) - len(values) % channels
    expected = values[:whole].astype(np.float64).reshape(-1, channels).mean(axis=1) / scale
    decoder = PcmDecoder(audio(encoding, channels))
    pieces = [values.tobytes()[a:b] for a, b in pairwise([0, *cuts, None])]
    out = np.concatenate([decoder.decode(piece) for piece in pieces])
    np.testing.assert_allclose(out, expected, atol=1e-7)
    assert out.dtype == np.float32
    received = encoding.sample_bytes * (len(values) - whole)
    assert (decoder.incomplete is None) == (not received)
    if decoder.incomplete is not None:
        size = encoding.sample_bytes * channels
        assert str(decoder.incomplete).endswith(f"received {received} of {size} bytes")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2 * MAX_AMPLITUDE])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_bad_sample_is_named_and_those_before_it_are_kept(bad: float, channels: int) -> None:
    decoder = PcmDecoder(audio(Encoding.PCM_F32LE, channels))
    decoder.decode(np.zeros(10 * channels, "<f4").tobytes())
    values = np.full((8, channels), 0.25, "<f4")
    values[5, -1] = bad
    with pytest.raises(BadAudioError, match="sample 15 is") as caught:
        decoder.decode(values.tobytes() + b"\0")
    assert caught.value.dropped == 3
    assert decoder.incomplete is None
    np.testing.assert_array_equal(caught.value.samples, np.full(5, 0.25, np.float32))
