"""Networks under named conditions: ``python -m training.evaluation.conditions live light``.

The held-out instruments play validation scores; each condition degrades the same dry excerpts in
one way. Prints the average precision of frames and onsets at one look-ahead for each, and the false
notes per minute in sounds without notes. To weigh a part of the training data, train a network with
and without it and compare the two here.
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from model.config import FRAMES, HOP
from model.storage import WeightsError, load, write_whole
from model.transcriber import TranscriptionModel
from service.engine.engine import Engine
from service.protocol.options import StreamOptions
from service.session.transcribe import transcribe_array
from training.commands import add_material, documented_parser
from training.music.metrics import frame_average_precision
from training.music.synth.acoustics import codec, noise
from training.music.synth.acoustics.augment import augment
from training.music.synth.acoustics.speech import speech
from training.music.synth.config import RecordingConfig, SynthConfig
from training.music.synth.dataset import Batch, Excerpt, empty_batch
from training.music.synth.excerpts import load_material
from training.music.synth.labels import ONSET_SCALE
from training.music.synth.render import Rendered
from training.music.synth.validation import WINDOWS_PER_EXCERPT, dry_excerpts

Sound = NDArray[np.float32]
Condition = Callable[[Sound, int, np.random.Generator], Sound]
Scores = dict[str, float]

PEAK = 0.7  # of excerpts, before a condition lowers the level
MP3_COMPRESSION = 0.8  # 24 kbit/s at 11,025 Hz
STREAM = StreamOptions(lookahead_ms=200.0, block_frames=8)
UNTOUCHED = RecordingConfig(**{**dict.fromkeys(vars(RecordingConfig()), 0.0), "quietest_db": -40.0})


def _recorded(**changes: float) -> Condition:
    config = replace(UNTOUCHED, **changes)
    return lambda audio, rate, rng: augment(audio, rate, rng, config)


def _beside(make: Callable[[int, int, np.random.Generator], Sound], level_db: float) -> Condition:
    """Adds another sound at this level relative to the music (mean over the excerpt)."""

    def spoil(audio: Sound, rate: int, rng: np.random.Generator) -> Sound:
        other = make(len(audio), rate, rng)
        gain = np.std(audio) / max(1e-9, float(np.std(other))) * 10 ** (level_db / 20)
        return _at_peak(audio + np.float32(gain) * other)

    return spoil


def _pink(length: int, rate: int, rng: np.random.Generator) -> Sound:
    return noise.coloured(length, "pink", rate, rng)


CONDITIONS: dict[str, Condition] = {
    "clean": lambda audio, rate, rng: audio,
    "room": _recorded(room=1.0),
    "microphone": _recorded(equaliser=1.0),
    "noise -15 dB": _beside(_pink, -15.0),
    "voice -5 dB": _beside(speech, -5.0),
    "drums -5 dB": _beside(noise.drums, -5.0),
    "telephone": lambda audio, rate, rng: codec.telephone(audio, rate),
    "MP3": lambda audio, rate, rng: codec.mp3(audio, rate, MP3_COMPRESSION),
    "-40 dB": lambda audio, rate, rng: audio * np.float32(0.01 / PEAK),
    "clipped": lambda audio, rate, rng: np.clip(audio * np.float32(4 / PEAK), -1, 1),
}
EMPTY = {"noise": _pink, "talk": speech, "drums": noise.drums}
"""Sounds without notes."""


class ConditionSet:
    """Windows of the same held-out excerpts under every condition; deterministic."""

    def __init__(self, synth: SynthConfig, windows: int, junk_s: float, seed: int = 23) -> None:
        rng = np.random.default_rng(seed)
        material = load_material(synth, "validation")
        self.rate = material.bank.sample_rate
        dry = dry_excerpts(material, synth, -(-windows // WINDOWS_PER_EXCERPT), rng)
        self.batches = {
            name: self._batch(dry, spoil, windows, seed + number, synth.context)
            for number, (name, spoil) in enumerate(CONDITIONS.items())
        }
        self.junk = {
            name: _at_peak(make(int(junk_s * self.rate), self.rate, np.random.default_rng(seed)))
            for name, make in EMPTY.items()
        }

    def _batch(
        self, dry: list[Rendered], spoil: Condition, windows: int, seed: int, context: int
    ) -> Batch:
        batch = empty_batch(windows, context)
        for number, part in enumerate(dry):
            audio = spoil(_at_peak(part.audio), self.rate, np.random.default_rng([seed, number]))
            where = np.random.default_rng(number)  # the same windows under every condition
            excerpt = Excerpt(Rendered(audio, part.notes), self.rate, where)
            first = number * WINDOWS_PER_EXCERPT
            for row in range(first, min(first + WINDOWS_PER_EXCERPT, windows)):
                excerpt.write(int(where.integers(excerpt.positions)), batch, row)
        return batch

    def score(self, network: TranscriptionModel) -> dict[str, Scores]:
        """``ap`` and ``onset_ap`` of each condition, ``notes`` per minute of each empty sound."""
        frame = FRAMES - int(STREAM.lookahead_ms / 1000 * self.rate / HOP)
        scores: dict[str, Scores] = {}
        for name, batch in self.batches.items():
            parts = torch.from_numpy(batch.audio).split(32)
            found = torch.cat([network.predict(part)[:, :, frame] for part in parts]).numpy()
            truth = {
                "frame": batch.frame[:, frame],
                "onset": batch.onset[:, frame] > ONSET_SCALE // 2,
            }
            scores[name] = {
                "ap" if head == "frame" else f"{head}_ap": frame_average_precision(
                    found[:, row], truth[head]
                )
                for row, head in enumerate(network.config.heads)
                if head in truth
            }
        with Engine(network) as engine:
            for name, sound in self.junk.items():
                notes = transcribe_array(sound, self.rate, engine, STREAM).notes
                scores[f"only {name}"] = {"notes": 60 * self.rate * len(notes) / len(sound)}
        return scores


def _at_peak(audio: Sound) -> Sound:
    return audio * np.float32(PEAK / max(1e-9, float(np.abs(audio).max())))


def table(networks: dict[str, dict[str, Scores]]) -> str:
    """Markdown: a row for each network, a column for each condition."""
    names = list(next(iter(networks.values())))
    lines = ["| | " + " | ".join(names) + " |", "|---" + "|---:" * len(names) + "|"]
    for network, scores in networks.items():
        cells = [
            " / ".join(
                f"{v:.0f}" if figure == "notes" else f"{v:.3f}" for figure, v in cell.items()
            )
            for cell in (scores[name] for name in names)
        ]
        lines.append(f"| {network} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = documented_parser("training.evaluation.conditions", __doc__)
    parser.add_argument("weights", nargs="+", help="shipped names or .safetensors files")
    add_material(parser)
    parser.add_argument("--windows", type=int, default=400, help="windows per condition")
    parser.add_argument(
        "--junk-seconds", type=float, default=60.0, help="length of each empty sound"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    try:
        conditions = ConditionSet(
            SynthConfig(options.synth, options.cache), options.windows, options.junk_seconds
        )
        found = {name: conditions.score(load(name)) for name in options.weights}
    except (WeightsError, OSError, ValueError) as error:
        print(f"training.evaluation.conditions: {error}", file=sys.stderr)
        return 1
    if options.json:
        write_whole(options.json, json.dumps(found, indent=1).encode())
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
