"""A host of the ONNX graph with numpy and onnxruntime alone: a WAV file in, notes out.

``python -m model.export_onnx live live.onnx``, then
``python onnx_host.py live.onnx song.wav`` prints a line for every note. ``ffmpeg -i song.mp3 -ac 1
-ar 11025 song.wav`` makes such a file.
"""

import json
import sys
import wave
from collections.abc import Iterator

import numpy as np
import onnxruntime

OFF = 0.4  # a note ends below this probability


def read_wav(path: str, rate: int) -> np.ndarray:
    """Read the samples of a mono 16-bit WAV file at this rate."""
    with wave.open(path, "rb") as file:
        if (file.getnchannels(), file.getsampwidth(), file.getframerate()) != (1, 2, rate):
            sys.exit(f"{path}: this host reads mono, 16 bits a sample, {rate} Hz")
        pcm = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return (pcm / 32768).astype(np.float32)


def frames(graph: str, path: str) -> Iterator[tuple[float, dict[str, np.ndarray], dict]]:
    """Yield (seconds, {head: probabilities of 128 pitches}, thresholds) of every frame."""
    session = onnxruntime.InferenceSession(graph)
    about = session.get_modelmeta().custom_metadata_map
    info = {name: json.loads(text) for name, text in about.items()}
    state = {name: np.zeros((1, *shape), np.float32) for name, shape in info["state"].items()}
    samples, frame = read_wav(path, info["sample_rate"]), info["first_frame"]
    count, step = -(-len(samples) // info["hop"]), info["block_frames"] * info["hop"]
    for start in range(0, len(samples) + (info["lookahead_hops"] + 1) * info["hop"], step):
        new = np.zeros((1, step), np.float32)
        part = samples[start : start + step]
        new[0, : len(part)] = part
        probabilities, *after = session.run(None, {"new": new, **state})
        state = dict(zip(state, after, strict=True))
        for one in probabilities[0].swapaxes(0, 1):  # (heads, 128)
            if 0 <= frame < count:
                heads = dict(zip(info["heads"], one, strict=True))
                yield frame * info["hop"] / info["sample_rate"], heads, info["tracker"]
            frame += 1


def notes(graph: str, path: str) -> Iterator[tuple[float, float, int]]:
    """Yield (onset, offset, pitch) of every note when it ends: times in seconds, MIDI pitch."""
    began, before, last = np.full(128, np.nan), np.zeros((2, 128)), 0.0
    for time, heads, limit in frames(graph, path):
        # A note begins where the probability of an onset has just passed a peak.
        peak = (before[1] >= limit["onset_threshold"]) & (before[1] > before[0])
        peak &= before[1] >= heads["onset"]
        ends = ~np.isnan(began) & (peak | (heads["frame"] < OFF))
        for pitch in np.flatnonzero(ends):
            yield began[pitch], last, int(pitch)
        began[ends], began[peak & (heads["frame"] >= limit["frame_on_threshold"])] = np.nan, last
        before, last = np.stack([before[1], heads["onset"]]), time
    for pitch in np.flatnonzero(~np.isnan(began)):
        yield began[pitch], last, int(pitch)


if __name__ == "__main__":
    for onset, offset, pitch in notes(*sys.argv[1:]):
        print(f"{onset:8.3f} {offset:8.3f} {pitch:3d}")
