"""The options in effect, ready for JSON."""

from typing import Any

from model.config import ModelConfig
from model.instruments import PROGRAMS, distinguished_by
from service.protocol.options import StreamOptions


def chosen(options: StreamOptions, config: ModelConfig) -> dict[str, Any]:
    """Model, mode, look-ahead, block, and the MIDI program of each instrument it may name."""
    return {
        "model": config.name,
        "mode": options.mode.value,
        "lookahead_ms": round(options.actual_lookahead_ms(config.sample_rate), 3),
        "block_frames": options.frames_per_window,
        "instruments": {
            name: PROGRAMS[name]
            for name in distinguished_by(config.heads)
            if name in options.instruments or not options.instruments
        },
    }
