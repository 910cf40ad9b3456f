"""Comparison of accuracy with other systems: ``python -m tests.benchmarks.peer --help``.

All systems transcribe the same recordings, and the same code scores them. This service transcribes
a live stream with the requested look-ahead. The peers transcribe complete files with their default
settings, in a separate environment. swift-f0 transcribes monophonic recordings only, and has no
frame probabilities.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from model.config import HOP, PITCHES, SAMPLE_RATE
from model.storage import WeightsError, load
from service.protocol.options import StreamOptions
from training.evaluation.real import Report, evaluate_collection, interval, report, score
from training.music.notes import Notes, notes_of_rows
from training.music.recordings import Recording, read_collection

PEERS = {"basic_pitch": "basic-pitch", "swift_f0": "swift-f0"}  # package: name
INSTALL = (
    "python3.11 -m venv VENV && VENV/bin/pip install "
    "'basic-pitch[onnx]==0.4.0' swift-f0==0.3.0 'setuptools<81'"
)
MONOPHONIC_PEERS = {"swift_f0"}
LOWEST = 21  # MIDI pitch of the first column of basic-pitch
FRAME_S = HOP / SAMPLE_RATE


class PeerError(RuntimeError):
    """Missing peer, failed peer, or recordings that cannot be compared."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="as for training.evaluate")
    parser.add_argument("--peer", type=Path, required=True, help="environment with the peer")
    parser.add_argument("--lookahead-ms", type=float, default=200.0)
    parser.add_argument("--label-shift-ms", type=float, default=0.0)
    parser.add_argument("--model", default="live")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args(arguments)
    shift_s = options.label_shift_ms / 1000
    try:
        packages = find_peers(options.peer)
        stream = StreamOptions(lookahead_ms=options.lookahead_ms)
        collection = read_collection(options.data_dir)
        (ours,) = evaluate_collection(
            collection, partial(load, options.model), [stream], shift_s, options.jobs
        )
        if ours["failures"]:  # The peers' means would include other recordings.
            raise PeerError("; ".join(ours["failures"].values()))
        if not all(is_monophonic(recording.notes) for recording in collection.recordings):
            packages = [package for package in packages if package not in MONOPHONIC_PEERS]
        theirs = [
            evaluate_peer(options.peer, package, collection.recordings, shift_s)
            for package in packages
        ]
    except (PeerError, WeightsError, ValueError, OSError) as error:
        print(f"tests.benchmarks.peer: {error}", file=sys.stderr)
        return 1
    print(f"{options.data_dir}: {len(ours['recordings'])} recordings")
    for peer in theirs:
        print(columns(ours, peer, f"{ours['model']}, {options.lookahead_ms:g} ms"))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"ours": ours, "peers": theirs}, indent=1))
    return 0


def find_peers(peer: Path) -> list[str]:
    """Return the packages of PEERS in the environment ``peer``. Raise PeerError without any."""
    python = peer / "bin" / "python"
    # An import would take seconds.
    code = f"import importlib.util as u; print(*filter(u.find_spec, {list(PEERS)}))"
    if python.exists():
        result = subprocess.run([python, "-c", code], check=False, capture_output=True, text=True)
        if result.stdout.split():
            return result.stdout.split()
    raise PeerError(f"no peer is installed in {peer}; install them with: {INSTALL}")


def is_monophonic(notes: Notes) -> bool:
    """Return True if several notes sound for less than 5 % of the sounding time."""
    frames = int(np.ceil(notes.offset.max(initial=0) / FRAME_S))
    sounding = notes.roll(frames, FRAME_S).sum(axis=1)
    return bool((sounding > 1).sum() < 0.05 * (sounding > 0).sum())


def transcribe(peer: Path, package: str, out: Path, audio: list[Path]) -> None:
    """Write the notes that a peer detects in each file (see ``peer_program``). Raise PeerError."""
    program = Path(__file__).with_name("peer_program.py")
    command: list[str | Path] = [peer / "bin" / "python", program, package, out]
    command += [path.resolve() for path in audio]
    result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if result.returncode:
        raise PeerError(f"{PEERS[package]} failed:\n{result.stderr[-2000:]}")


def evaluate_peer(
    peer: Path, package: str, recordings: list[Recording], label_shift_s: float
) -> Report:
    """Return a ``real.report`` with ``times_real_time``. Raise PeerError."""
    with tempfile.TemporaryDirectory() as folder:
        transcribe(peer, package, Path(folder), [recording.audio for recording in recordings])
        results, audio_s, computing_s = {}, 0.0, 0.0
        for recording in recordings:
            with np.load(Path(folder) / f"{recording.audio.stem}.npz") as output:
                length_s = soundfile.info(recording.audio).duration
                notes = notes_of_rows(output["notes"])
                reference = recording.notes.shifted(label_shift_s)
                if "frames" in output:
                    frames = resample_frames(output["frames"], output["times"], length_s)
                else:
                    count = int(np.ceil(length_s / FRAME_S))
                    frames = notes.roll(count, FRAME_S).astype(np.float32)
                result = score(reference, notes, frames, FRAME_S)
                if "frames" not in output:
                    del result.figures["frame_ap"]
                results[recording.name] = result
                audio_s, computing_s = audio_s + length_s, computing_s + float(output["seconds"])
    return report(results) | {"model": PEERS[package], "times_real_time": audio_s / computing_s}


def resample_frames(
    frames: NDArray[np.float32], times_s: NDArray[np.float64], length_s: float
) -> NDArray[np.float32]:
    """Map probabilities [f, 88] at ``times_s`` to the nearest frames of FRAME_S, [n, PITCHES]."""
    frame_times_s = np.arange(int(np.ceil(length_s / FRAME_S))) * FRAME_S
    middles = (times_s[1:] + times_s[:-1]) / 2
    out = np.zeros((len(frame_times_s), PITCHES), np.float32)
    out[:, LOWEST : LOWEST + frames.shape[1]] = frames[np.searchsorted(middles, frame_times_s)]
    return out


def columns(ours: Report, theirs: Report, name: str) -> str:
    """Return a table of both means and the difference, with its 95 % bootstrap interval over
    recordings."""
    lines = [f"{'':20}{name:>18}{theirs['model']:>16}{'difference':>12}    95 % interval"]
    for figure, mean in ours["mean"].items():
        other = theirs["mean"].get(figure)
        if mean is None or other is None:
            continue
        pairs = [
            (figures.get(figure), theirs["recordings"][recording].get(figure))
            for recording, figures in ours["recordings"].items()
        ]
        limits = interval([a - b for a, b in pairs if a is not None and b is not None])
        text = f"{limits[0]:+.3f} to {limits[1]:+.3f}" if limits else "-"
        lines.append(f"{figure:20}{mean:18.3f}{other:16.3f}{mean - other:+12.3f}    {text}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
