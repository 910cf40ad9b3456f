"""transkun on audio files; run by the interpreter of an environment that has it.

``PEER/bin/python peer_transkun.py OUT AUDIO...`` writes OUT/STEM.npz for each file, with the
weights in its package and its default settings: ``notes`` [n, 4] (onset s, offset s, MIDI pitch,
velocity) and the ``seconds`` it took. It has no frame probabilities. It imports nothing of this
project: that has packages of other versions.
"""

import importlib.resources
import sys
import time
from pathlib import Path

import moduleconf
import numpy as np
import soundfile
import soxr
import torch


def main(out: Path, recordings: list[Path]) -> None:
    """Transcribe every recording with one model."""
    weights = importlib.resources.files("transkun") / "pretrained"
    settings = moduleconf.parseFromFile(str(weights / "2.0.conf"))["Model"]
    model = settings.module.TransKun(conf=settings.config)
    state = torch.load(str(weights / "2.0.pt"), map_location="cpu")
    model.load_state_dict(state.get("best_state_dict", state.get("state_dict")), strict=False)
    model.eval()
    for audio in recordings:
        began = time.perf_counter()
        samples, rate = soundfile.read(audio, dtype="float32", always_2d=True)
        if rate != model.fs:
            samples = soxr.resample(samples, rate, model.fs)
        with torch.inference_mode():
            found = model.transcribe(torch.from_numpy(samples), discardSecondHalf=False)
        seconds = time.perf_counter() - began
        # Pedals have negative pitches.
        rows = [(n.start, n.end, n.pitch, n.velocity) for n in found if n.pitch > 0]
        notes = np.array(rows, dtype=np.float64).reshape(-1, 4)
        np.savez(out / f"{audio.stem}.npz", notes=notes, seconds=seconds)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(audio) for audio in sys.argv[2:]])
