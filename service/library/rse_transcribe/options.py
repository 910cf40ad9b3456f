"""Options of a transcription as callers give them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Real

from model.config import HOP, ModelConfig
from service.protocol.options import (
    MAX_LOOKAHEAD_HOPS,
    MIN_LOOKAHEAD_HOPS,
    OptionsError,
    StreamOptions,
)


def stream_options(
    defaults: StreamOptions,
    config: ModelConfig,
    lookahead_ms: float,
    instruments: Sequence[str],
    block_frames: int | None = None,
) -> StreamOptions:
    """The defaults with what the caller asks for. Raises subclasses of ValueError.

    The service moves a look-ahead into its limits; here one outside of them is an error.
    """
    hop_ms = 1000 * HOP / config.sample_rate
    least, most = math.floor(MIN_LOOKAHEAD_HOPS * hop_ms), math.ceil(MAX_LOOKAHEAD_HOPS * hop_ms)
    if not isinstance(lookahead_ms, Real) or not least <= float(lookahead_ms) <= most:
        raise OptionsError(f"lookahead_ms must be {least} to {most} ms, not {lookahead_ms!r}")
    names = [instruments] if isinstance(instruments, str) else instruments
    if block_frames is None:
        block_frames = defaults.block_frames
    return replace(
        defaults,
        lookahead_ms=float(lookahead_ms),
        block_frames=int(block_frames) if isinstance(block_frames, Integral) else block_frames,
        instruments=tuple(str(name) for name in names),
    )
