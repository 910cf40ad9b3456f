"""Named configurations of the command line: what was run is written in Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from model.config import LIVE, PAPER
from training.loop import LoopConfig
from training.musicnet import MusicConfig


@dataclass(frozen=True)
class MusicRun:
    """One training run of the transcription task."""

    music: MusicConfig = field(default_factory=MusicConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)
    out: Path = Path("runs/musicnet")
    """Folder for checkpoints, optimiser state and metrics.jsonl."""
    resume: bool = False
    """Go on from the folder's last state."""


MUSIC_PRESETS: dict[str, MusicRun] = {
    # The weights in the package.
    "live": MusicRun(
        MusicConfig(model=LIVE, validation_windows=1000),
        LoopConfig(minutes=120, validate_minutes=15),
    ),
    # A few minutes on two cores, to see it learn.
    "laptop": MusicRun(
        MusicConfig(model=LIVE, validation_windows=300),
        LoopConfig(minutes=4, validate_minutes=2),
    ),
    # The paper's network and the released code's batch size, steps and rate; wants a GPU.
    "paper": MusicRun(
        MusicConfig(model=PAPER, batch_size=16, workers=8),
        LoopConfig(steps=800_000, learning_rate=0.00125 * (96 / 192) ** 0.5, warmup=0),
    ),
}
