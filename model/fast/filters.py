"""Computes the filterbank's newest frames, using decimated audio for long filters.

Filters for low notes need most of a filterbank's multiplications, but respond only to frequencies
below a few hundred hertz. They do not need 11,025 samples per second. Let k be a filter, h a
low-pass filter, and z the low-passed audio at every fourth sample:

    sum over t of k[t] x[t]  ≈  sum over n of c[n] z[n]  +  sum over the newest hop of r[t] x[t],
    c[n] = 4 sum over t of k[t] h[t - 4n],    r[t] = k[t] - sum over n of c[n] h[t - 4n]

h is symmetric, so near the end of the filter it would need later samples. The last term therefore
makes the newest hop exact. For older samples, the right side lacks the response of k above a few
hundred hertz. In trained filters this response is noise. If it is not at least 70 dB weaker than a
filter (``ERROR_DB``), all filters of this length use the original audio.

The frames depend only on the window, not on the stream's history.
"""

import torch
from scipy.signal import firwin
from torch import Tensor
from torch.nn import functional as F

from model.config import HOP
from model.front_end.filterbank import Filterbank

DECIMATION = 4
REACH = 24  # number of samples of h on either side of its middle
KAISER = 10.06  # beta of h's window: 100 dB of rejection
ERROR_DB = -70.0  # maximum energy of a decimated filter's error, relative to the filter's energy
FEW_FRAMES = 2  # maximum number of frames for which row-major filters are faster
# Number of newest samples of z that are not used, because they need audio after the window.
_UNREAD = REACH // DECIMATION


class NewestFrames:
    """Computes the newest complete frames of a filterbank. Copies the weights, with the real and
    the imaginary part of each filter in adjacent rows. Thread-safe."""

    def __init__(self, bank: Filterbank) -> None:
        self._longest = bank.longest
        taps = decimator()
        self._blocks = _blocks(taps)
        self._groups: list[tuple[bool, int, Tensor, Tensor]] = []
        for size, kernel in bank.kernels.items():
            filters = kernel.detach().transpose(1, 2).flatten(1)  # (2 * bins, samples)
            reduced = decimated(filters, taps)
            rows = filters if reduced is None else reduced
            rows = rows.unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1)  # in pairs
            if int(size) == self._longest:  # the last group
                rows = F.pad(rows, (0, 0, 0, 2))  # a filter of zeros: silence
            # Products with many frames copy the filters, which is faster in column-major order.
            few, many = rows.contiguous(), rows.t().contiguous().t()
            self._groups.append((reduced is not None, int(size), few, many))

    def power(self, audio: Tensor, frames: int) -> Tensor:
        """Map audio, (samples,), to squared magnitudes of its newest frames, (frames, bins + 1), in
        the order of the filterbank's kernels. The last bin is 0. Zeros pad short audio at the
        start."""
        span = REACH + self._longest + (frames - 1) * HOP
        audio = audio[max(0, len(audio) - span) :]
        audio = F.pad(audio, (span - len(audio), REACH))
        low = self._low(audio, frames)
        waves = []
        for is_decimated, size, few, many in self._groups:
            weights = few if frames <= FEW_FRAMES else many
            if is_decimated:
                inputs = low[:, low.shape[1] - weights.shape[1] :]
            else:
                inputs = audio[REACH + self._longest - size : -REACH].unfold(0, size, HOP)
            waves.append(F.linear(inputs, weights))
        return torch.cat(waves, dim=1).square_().view(frames, -1, 2).sum(2)

    def _low(self, audio: Tensor, frames: int) -> Tensor:
        """Return the input of the decimated filters, (frames, samples of z + HOP)."""
        length = self._longest // DECIMATION - _UNREAD
        z = torch.mm(audio.unfold(0, HOP + 2 * REACH, HOP), self._blocks).flatten()
        newest = audio[REACH + self._longest - HOP : -REACH].view(frames, HOP)
        return torch.cat([z.unfold(0, length, HOP // DECIMATION), newest], dim=1)


def decimator() -> Tensor:
    """Return the low-pass filter h, (2 * REACH + 1,)."""
    taps = firwin(2 * REACH + 1, 1 / DECIMATION, window=("kaiser", KAISER))
    return torch.from_numpy(taps).float()


def decimated(filters: Tensor, taps: Tensor) -> Tensor | None:
    """Map filters, (filters, samples), to filters of decimated audio, (filters, samples of z +
    HOP). Return None if the error of a filter would exceed ``ERROR_DB``."""
    target = F.pad(filters, (REACH, 0))[:, None]  # the first h starts before the filter
    h = taps.view(1, 1, -1)
    # The middle of the first h is the middle of the filter's first DECIMATION samples.
    first = DECIMATION // 2
    coefficients = DECIMATION * F.conv1d(target[..., first:], h, stride=DECIMATION)
    computed = F.conv_transpose1d(coefficients, h, stride=DECIMATION)
    missing = target - F.pad(computed, (first, target.shape[2] - first - computed.shape[2]))
    newest, before = missing[..., -HOP:], missing[..., :-HOP]
    error = before.square().sum(2) / target.square().sum(2)
    if error.max() > 10 ** (ERROR_DB / 10):
        return None
    return torch.cat([coefficients, newest], dim=2)[:, 0]


def _blocks(taps: Tensor) -> Tensor:
    """Return the matrix that maps a hop, and REACH samples on either side, to samples of z."""
    columns = [
        F.pad(taps, (begin, HOP - 1 - begin)) for begin in range(DECIMATION // 2, HOP, DECIMATION)
    ]
    return torch.stack(columns, dim=1)
