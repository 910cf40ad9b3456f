"""Detects the notes of a WAV file with the ONNX graph. Needs only numpy and onnxruntime.

python -m model.export_onnx live live.onnx    # write the graph
ffmpeg -i song.mp3 -ac 1 -ar 11025 song.wav   # convert a recording
python onnx_host.py live.onnx song.wav        # print a line for each note
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
            sys.exit(f"{path}: expected a mono file with 16-bit samples at {rate} Hz")
        pcm = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return (pcm / 32768).astype(np.float32)


def frames(graph: str, path: str) -> Iterator[tuple[float, dict[str, np.ndarray], dict]]:
    """Yield time in s, {head: probabilities of 128 pitches} and thresholds for each frame."""
    session = onnxruntime.InferenceSession(graph)
    metadata = session.get_modelmeta().custom_metadata_map
    info = {name: json.loads(text) for name, text in metadata.items()}
    state = {name: np.zeros((1, *shape), np.float32) for name, shape in info["state"].items()}
    samples, frame = read_wav(path, info["sample_rate"]), info["first_frame"]
    count, step = -(-len(samples) // info["hop"]), info["block_frames"] * info["hop"]
    for start in range(0, len(samples) + (info["lookahead_hops"] + 1) * info["hop"], step):
        new = np.zeros((1, step), np.float32)
        part = samples[start : start + step]
        new[0, : len(part)] = part
        probabilities, *new_state = session.run(None, {"new": new, **state})
        state = dict(zip(state, new_state, strict=True))
        for rows in probabilities[0].swapaxes(0, 1):  # [heads, 128]
            if 0 <= frame < count:
                heads = dict(zip(info["heads"], rows, strict=True))
                yield frame * info["hop"] / info["sample_rate"], heads, info["tracker"]
            frame += 1


def notes(graph: str, path: str) -> Iterator[tuple[float, float, int]]:
    """Yield onset in s, offset in s and MIDI pitch of each note when it ends."""
    onset_s, before, last_s = np.full(128, np.nan), np.zeros((2, 128)), 0.0
    for time_s, heads, limit in frames(graph, path):
        # A note starts where the onset probability was highest in the frame before.
        peak = (before[1] >= limit["onset_threshold"]) & (before[1] > before[0])
        peak &= before[1] >= heads["onset"]
        ends = ~np.isnan(onset_s) & (peak | (heads["frame"] < OFF))
        for pitch in np.flatnonzero(ends):
            yield onset_s[pitch], last_s, int(pitch)
        onset_s[ends] = np.nan
        onset_s[peak & (heads["frame"] >= limit["frame_on_threshold"])] = last_s
        before, last_s = np.stack([before[1], heads["onset"]]), time_s
    for pitch in np.flatnonzero(~np.isnan(onset_s)):
        yield onset_s[pitch], last_s, int(pitch)


if __name__ == "__main__":
    for onset, offset, pitch in notes(*sys.argv[1:]):
        print(f"{onset:8.3f} {offset:8.3f} {pitch:3d}")
