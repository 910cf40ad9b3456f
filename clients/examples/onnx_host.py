"""Detects the notes of a WAV file with an exported ONNX graph. Needs only numpy and onnxruntime.

python -m model.export_onnx live live.onnx    # write the graph
ffmpeg -i song.mp3 -ac 1 -ar 11025 song.wav   # convert a recording
python onnx_host.py live.onnx song.wav        # print a line for each note
"""

import json
import math
import sys
import wave
from collections.abc import Iterator

import numpy as np
import onnxruntime

OFF = 0.4  # a note ends if its frame probability falls below this value


def read_wav(path: str, rate: int) -> np.ndarray:
    """Read the samples of a mono 16-bit WAV file with this sample rate."""
    with wave.open(path, "rb") as file:
        if (file.getnchannels(), file.getsampwidth(), file.getframerate()) != (1, 2, rate):
            sys.exit(f"{path}: expected a mono file with 16-bit samples at {rate} Hz")
        pcm = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return (pcm / 32768).astype(np.float32)


def frames(graph: str, path: str) -> Iterator[tuple[float, dict[str, np.ndarray], dict]]:
    """Yield, for each frame, its time in s, the probabilities of 128 pitches by head, and the
    tracker's settings."""
    session = onnxruntime.InferenceSession(graph)
    metadata = session.get_modelmeta().custom_metadata_map
    info = {name: json.loads(text) for name, text in metadata.items()}
    state = {name: np.zeros((1, *shape), np.float32) for name, shape in info["state"].items()}
    samples, hop = read_wav(path, info["sample_rate"]), info["hop"]
    frame, count = info["first_frame"], math.ceil(len(samples) / hop)
    step = info["block_frames"] * hop
    for start in range(0, len(samples) + (info["lookahead_hops"] + 1) * hop, step):
        new = np.zeros((1, step), np.float32)
        part = samples[start : start + step]
        new[0, : len(part)] = part
        probabilities, *new_state = session.run(None, {"new": new, **state})
        state = dict(zip(state, new_state, strict=True))
        for rows in probabilities[0].swapaxes(0, 1):  # [heads, 128]
            if 0 <= frame < count:
                heads = dict(zip(info["heads"], rows, strict=True))
                yield frame * hop / info["sample_rate"], heads, info["tracker"]
            frame += 1


def notes(graph: str, path: str) -> Iterator[tuple[float, float, int]]:
    """Yield the onset (s), the offset (s) and the MIDI pitch of each note when the note ends."""
    onset_s, last_s = np.full(128, np.nan), 0.0
    earlier = previous = np.zeros(128)  # onset probabilities two frames ago and one frame ago
    for time_s, heads, limit in frames(graph, path):
        # A note starts at the previous frame if the onset probability has a peak there.
        peak = (previous >= limit["onset_threshold"]) & (previous > earlier)
        peak &= previous >= heads["onset"]
        ends = ~np.isnan(onset_s) & (peak | (heads["frame"] < OFF))
        for pitch in np.flatnonzero(ends):
            yield onset_s[pitch], last_s, int(pitch)
        onset_s[ends] = np.nan
        onset_s[peak & (heads["frame"] >= limit["frame_on_threshold"])] = last_s
        earlier, previous, last_s = previous, heads["onset"], time_s
    for pitch in np.flatnonzero(~np.isnan(onset_s)):
        yield onset_s[pitch], last_s, int(pitch)


if __name__ == "__main__":
    for onset, offset, pitch in notes(*sys.argv[1:]):
        print(f"{onset:8.3f} {offset:8.3f} {pitch:3d}")
