"""The paper's figure on MusicNet: average precision of middle frames (paper, section "MusicNet").

Every test recording is cut into windows 128 samples apart; the middle frame of each is scored, with
its calibration. The predictions for all recordings and notes are pooled.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from model.config import CENTRE_FRAME
from model.transcriber import TranscriptionModel
from training.music.metrics import frame_average_precision
from training.music.recordings import Collection, Recording
from training.musicnet.layout import as_notes, find, read_intervals, split
from training.musicnet.windows import Archive, ArchiveConfig, Windows

BATCH = 64  # windows predicted at once


def labelled_test_set(config: ArchiveConfig) -> Collection:
    """The test recordings with their notes in seconds. Raises ArchiveError."""
    out = []
    for source in split(find(config.root), config.test)["test"]:
        notes = as_notes(read_intervals(source))
        out.append(Recording(str(source.number), source.audio, notes))
    return Collection(f"MusicNet, {config.test} test set", out, {})


def papers_figure(
    transcriber: TranscriptionModel, config: ArchiveConfig, stride: int
) -> dict[str, Any]:
    """Average precision over all test recordings and for each one.

    stride: samples between windows. Raises ArchiveError, and ValueError for a recording without a
    single window.
    """
    rate = transcriber.config.sample_rate
    device = next(transcriber.parameters()).device
    archive = Archive(config, rate, transcriber.config.context)
    predicted: list[NDArray[np.float32]] = []
    labels: list[NDArray[np.bool_]] = []
    recordings = {}
    for track in archive.tracks("test"):
        windows = Windows([track], rate, stride, archive.context)
        first = len(predicted)
        for begin in tqdm(range(0, len(windows), BATCH), desc=str(track.number), unit="batch"):
            batch = windows.read(range(begin, min(begin + BATCH, len(windows))))
            heads = transcriber.predict(torch.from_numpy(batch.audio).to(device))
            predicted.append(heads[:, 0, CENTRE_FRAME].float().cpu().numpy())
            labels.append(batch.targets.frame[:, CENTRE_FRAME] > 0)
        own = np.concatenate(predicted[first:]), np.concatenate(labels[first:])
        recordings[str(track.number)] = frame_average_precision(*own)
    pooled = np.concatenate(predicted), np.concatenate(labels)
    return {
        "average_precision": frame_average_precision(*pooled),
        "stride": stride,
        "windows": len(pooled[0]),
        "recordings": recordings,
    }
