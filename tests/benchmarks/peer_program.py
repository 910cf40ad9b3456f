"""Program that transcribes audio files with a peer, in the peer's environment.

``PEER/bin/python peer_program.py PACKAGE OUT AUDIO...`` uses the peer's default settings and writes
OUT/STEM.npz for each file. It contains ``notes`` [n, 4] (onset in s, offset in s, MIDI pitch,
velocity) and the computing time ``seconds``. With basic_pitch it also contains ``frames`` [f, 88]
(probabilities from MIDI pitch 21 on) and their ``times`` [f] in seconds. The program imports
nothing of this project, which needs other versions of packages.
"""

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def basic_pitch() -> Callable[[Path], dict[str, Any]]:
    """Return a function that transcribes with basic-pitch on ONNX Runtime."""
    from basic_pitch import FilenameSuffix, build_icassp_2022_model_path
    from basic_pitch.inference import Model, predict
    from basic_pitch.note_creation import model_frames_to_time

    model = Model(build_icassp_2022_model_path(FilenameSuffix.onnx))

    def transcribe(audio: Path) -> dict[str, Any]:
        output, _, events = predict(audio, model)
        frames = output["note"].astype(np.float32)
        notes = [(*event[:3], min(127, max(1, round(127 * float(event[3]))))) for event in events]
        return {"notes": notes, "frames": frames, "times": model_frames_to_time(len(frames))}

    return transcribe


def swift_f0() -> Callable[[Path], dict[str, Any]]:
    """Return a function that transcribes monophonic audio with swift-f0, without velocities."""
    from swift_f0 import SwiftF0, segment_notes

    detector = SwiftF0()

    def transcribe(audio: Path) -> dict[str, Any]:
        notes = segment_notes(detector.detect_file(str(audio)))
        pitches = [round(69 + 12 * math.log2(note.pitch_hz / 440)) for note in notes]
        rows = [(n.start, n.end, pitch, 80) for n, pitch in zip(notes, pitches, strict=True)]
        return {"notes": rows}

    return transcribe


def main(package: str, out: str, *recordings: str) -> None:
    transcribe = {"basic_pitch": basic_pitch, "swift_f0": swift_f0}[package]()
    for audio in map(Path, recordings):
        start_s = time.perf_counter()
        output = transcribe(audio)
        output["notes"] = np.array(output["notes"], dtype=np.float64).reshape(-1, 4)
        np.savez(Path(out, f"{audio.stem}.npz"), seconds=time.perf_counter() - start_s, **output)


if __name__ == "__main__":
    main(*sys.argv[1:])
