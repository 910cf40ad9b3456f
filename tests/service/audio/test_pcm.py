"""PCM bytes to mono samples, whatever the chunks are."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.audio.pcm import MAX_AMPLITUDE, BadAudioError, PcmDecoder
from service.protocol.options import AudioFormat, Encoding


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
    assert decoder.pending_bytes == encoding.sample_bytes * (len(values) - whole)


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
    assert decoder.pending_bytes == 0
    np.testing.assert_array_equal(caught.value.samples, np.full(5, 0.25, np.float32))
