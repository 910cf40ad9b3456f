"""swift-f0 on audio files; run by the interpreter of an environment that has it.

``PEER/bin/python peer_swift_f0.py OUT AUDIO...`` writes OUT/STEM.npz for each file, with its
default settings: ``notes`` [n, 4] (onset s, offset s, MIDI pitch, velocity 80: it has none) and the
``seconds`` it took. It hears one line and has no frame probabilities. It imports nothing of this
project: that has packages of other versions.
"""

import math
import sys
import time
from pathlib import Path

import numpy as np
from swift_f0 import SwiftF0, segment_notes


def main(out: Path, recordings: list[Path]) -> None:
    """Transcribe every recording with one detector."""
    detector = SwiftF0()
    for audio in recordings:
        began = time.perf_counter()
        found = segment_notes(detector.detect_file(str(audio)))
        seconds = time.perf_counter() - began
        rows = [
            (note.start, note.end, round(69 + 12 * math.log2(note.pitch_hz / 440)), 80)
            for note in found
        ]
        notes = np.array(rows, dtype=np.float64).reshape(-1, 4)
        np.savez(out / f"{audio.stem}.npz", notes=notes, seconds=seconds)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(audio) for audio in sys.argv[2:]])
