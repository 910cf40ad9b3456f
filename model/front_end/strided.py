"""The paper's front-end: stride-2 convolutions on the raw waveform.

Each convolution halves the length. A norm and an activation follow it. A linear map to m features
comes last (paper, section "Prepending convolutions", appendix C). Two convolutions turn a window of
8192 samples into the 2048 positions of the shuffle-exchange network.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from model.config import RSEConfig, StridedConfig
from model.switch import activate, initialise_map, make_norm

KERNEL = 4  # length of a kernel; the stride is 2, and one zero pads each side of the input
OUTPUT_SCALE = 0.25  # scales outputs to the standard deviation that the switch units preserve


class StridedFrontEnd(nn.Module):
    """Maps samples to the positions of the shuffle-exchange network."""

    def __init__(self, config: StridedConfig, rse: RSEConfig) -> None:
        super().__init__()
        self.input_noise = config.input_noise
        self.fourier = config.fourier
        self.activation = rse.activation
        count, maps = config.convolutions, rse.maps
        # Released code: the first of several convolutions has m / 2 channels, the last 2m.
        widths = [maps // 2] * (count > 1) + [maps] * (count - 2) + [2 * maps] * (count > 0)
        self.stride = 2**config.convolutions
        self.convolutions = nn.ModuleList(
            nn.Conv1d(before, after, KERNEL, stride=2, padding=1, bias=False)
            for before, after in zip([1, *widths], widths, strict=False)
        )
        self.norms = nn.ModuleList(make_norm(rse.norm, width) for width in widths)
        self.linear = nn.Linear(widths[-1] if widths else 1, rse.maps)
        self.scale = OUTPUT_SCALE if widths else 1.0
        for convolution in self.convolutions:
            nn.init.xavier_uniform_(convolution.weight)  # type: ignore[arg-type]
        # The "paper" initialisation expects features of standard deviation 1, unlike samples.
        initialise_map(self.linear, rse if widths else replace(rse, init="released"))

    def forward(self, window: Tensor) -> Tensor:
        """Map (batch, samples) to (batch, samples / 2^convolutions, m)."""
        x = interleaved_spectrum(window) if self.fourier else window
        x = x.unsqueeze(1)  # (batch, 1, samples)
        if self.training and self.input_noise:
            x = x + self.input_noise * torch.randn_like(x)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = convolution(x).transpose(1, 2)  # (batch, length, channels)
            x = activate(self.activation, norm(x)).transpose(1, 2)
        out: Tensor = self.linear(x.transpose(1, 2)) * self.scale
        return out


def interleaved_spectrum(window: Tensor) -> Tensor:
    """Map (batch, n) samples to their spectrum, (batch, n): alternating real and imaginary parts,
    without the Nyquist bin."""
    spectrum = torch.fft.rfft(window.float())[:, : window.shape[1] // 2]
    return torch.view_as_real(spectrum).flatten(1)
