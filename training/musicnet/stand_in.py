"""Writes a small synthetic archive in MusicNet's layout.

``python -m training.musicnet.stand_in DIR`` writes recordings of random chords with exact labels.
With them you can try every command for the archive within minutes. The results are meaningless.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile

from model.commands import documented_parser
from training.arrays import Rng
from training.musicnet.layout import SOURCE_RATE, TEST, VALIDATION

HEADER = "start_time,end_time,instrument,note,start_beat,end_beat,note_value"
TRAIN = (1727, 1728, 1729, 1730)
HARMONICS = 4
DECAY_S = 0.5  # time in which the amplitude of a tone decays to 1/e

Note = tuple[int, int, int]  # onset and offset in samples at SOURCE_RATE, MIDI note


def random_notes(rng: Rng, seconds: float) -> list[Note]:
    """Return one chord per 0.25 s. Each has one to three notes and sounds for 0.2 to 0.5 s."""
    notes = []
    for onset_s in np.arange(0, seconds - 0.5, 0.25):
        pitches = rng.choice(np.arange(48, 84), rng.integers(1, 4), replace=False)
        offset_s = onset_s + rng.uniform(0.2, 0.5)
        onset, offset = (round(SOURCE_RATE * time) for time in (onset_s, offset_s))
        notes += [(onset, offset, int(pitch)) for pitch in pitches]
    return notes


def write_recording(
    root: Path, part: str, number: int, notes: Sequence[Note], seconds: float
) -> None:
    """Write the audio and labels of a recording. part: "train" or "test"."""
    time = np.arange(round(seconds * SOURCE_RATE)) / SOURCE_RATE
    audio = np.zeros_like(time)
    for onset, offset, pitch in notes:
        age = time[: offset - onset]
        phase = 2 * np.pi * 440 * 2 ** ((pitch - 69) / 12) * age
        tone = sum(np.sin(k * phase) / k**2 for k in range(1, HARMONICS + 1))
        audio[onset:offset] += 0.2 * np.exp(-age / DECAY_S) * tone
    folders = [root / f"{part}_{kind}" for kind in ("data", "labels")]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    soundfile.write(folders[0] / f"{number}.wav", audio, SOURCE_RATE)
    rows = [
        f"{onset},{offset},1,{pitch},{i}.0,{i + 1}.0,Quarter"
        for i, (onset, offset, pitch) in enumerate(notes)
    ]
    (folders[1] / f"{number}.csv").write_text("\n".join([HEADER, *rows]) + "\n")


def write_stand_in(root: Path, seconds: float) -> None:
    """Write four training recordings, and the recordings of the paper's validation and test sets.
    seconds: duration of each recording."""
    parts = [("train", number) for number in (*TRAIN, *VALIDATION)]
    for part, number in [*parts, *(("test", number) for number in TEST)]:
        notes = random_notes(np.random.default_rng(number), seconds)
        write_recording(root, part, number, notes, seconds)


def main(arguments: list[str] | None = None) -> int:
    parser = documented_parser("training.musicnet.stand_in", __doc__)
    parser.add_argument("folder", type=Path, help="new folder for the archive")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each recording")
    options = parser.parse_args(arguments)
    if options.folder.exists():
        parser.error(f"{options.folder} already exists; choose a new folder")
    if not 2 <= options.seconds <= 3600:
        parser.error(f"--seconds must be 2 to 3600, not {options.seconds:g}")
    write_stand_in(options.folder, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
