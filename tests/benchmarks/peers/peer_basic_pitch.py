"""basic-pitch on audio files; run by the interpreter of an environment that has it.

``PEER/bin/python peer_basic_pitch.py OUT AUDIO...`` writes OUT/STEM.npz for each file, with its
default settings: ``notes`` [n, 4] (onset s, offset s, MIDI pitch, velocity), ``frames`` [f, 88]
(probabilities from MIDI pitch 21 on), ``times`` [f] in seconds, and the ``seconds`` it took.
It imports nothing of this project: that has packages of other versions.
"""

import sys
import time
from pathlib import Path

import numpy as np
from basic_pitch import FilenameSuffix, build_icassp_2022_model_path
from basic_pitch.inference import Model, predict
from basic_pitch.note_creation import model_frames_to_time


def main(out: Path, recordings: list[Path]) -> None:
    """Transcribe every recording with one model, in its ONNX form."""
    model = Model(build_icassp_2022_model_path(FilenameSuffix.onnx))
    for audio in recordings:
        began = time.perf_counter()
        output, _, events = predict(audio, model)
        seconds = time.perf_counter() - began
        rows = [
            (onset, offset, pitch, min(127, max(1, round(127 * float(amplitude)))))
            for onset, offset, pitch, amplitude, _ in events
        ]
        np.savez(
            out / f"{audio.stem}.npz",
            notes=np.array(rows, dtype=np.float64).reshape(-1, 4),
            frames=output["note"].astype(np.float32),
            times=model_frames_to_time(len(output["note"])),
            seconds=seconds,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(audio) for audio in sys.argv[2:]])
