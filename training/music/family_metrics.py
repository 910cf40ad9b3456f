"""How well a network hears each family of ``training.music.families``."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from model.config import CENTRE_FRAME, FRAMES, HOP
from model.transcriber import TranscriptionModel
from training.music.families import Passage
from training.music.metrics import frame_average_precision
from training.music.synth.dataset import Batch, Excerpt, empty_batch
from training.music.targets import ONSET_SCALE

LOOKAHEAD_S = 0.2
"""Frames with less look-ahead are not judged."""
STEP = 96
"""Hops between windows."""
BATCH = 64

Windows = dict[str, Batch]


def family_windows(passages: Mapping[str, Sequence[Passage]], context: int) -> Windows:
    """Windows of all passages, by family."""
    rng = np.random.default_rng(0)
    families = {}
    for name, some in passages.items():
        excerpts = [Excerpt(one.rendered, one.sample_rate, rng) for one in some]
        hops = [(one, hop) for one in excerpts for hop in range(0, one.positions, STEP)]
        batch = empty_batch(len(hops), context)
        for row, (excerpt, hop) in enumerate(hops):
            excerpt.write(hop, batch, row)
        families[name] = batch
    return families


def family_metrics(network: TranscriptionModel, families: Windows) -> dict[str, float]:
    """Average precision of frames and onsets at full look-ahead by family, ``frame_ap:NAME`` and
    ``onset_ap:NAME``, and their mean, ``families``; without notes, false onsets in a minute."""
    device = next(network.parameters()).device
    last = FRAMES - int(LOOKAHEAD_S * network.config.sample_rate / HOP)
    frames = slice(CENTRE_FRAME, last)
    heads = network.config.heads
    metrics: dict[str, float] = {}
    for name, (audio, targets) in families.items():
        parts = (part.to(device).float() for part in torch.from_numpy(audio).split(BATCH))
        heard = np.concatenate([network.predict(part)[:, :2, frames].cpu() for part in parts])
        onset = heard[:, heads.index("onset")]
        if not targets.frame.any():
            seconds = onset.shape[0] * onset.shape[1] * HOP / network.config.sample_rate
            metrics[f"false_onsets_min:{name}"] = 60 * _peaks(onset) / seconds
            continue
        truths = {
            "frame": (targets.frame > 0, targets.frame_unknown),
            "onset": (targets.onset > ONSET_SCALE // 2, targets.onset_unknown),
        }
        for head, (truth, unknown) in truths.items():
            known = unknown[:, frames] == 0
            found = heard[:, heads.index(head)]
            metrics[f"{head}_ap:{name}"] = frame_average_precision(
                found[known], truth[:, frames][known]
            )
    metrics["families"] = float(np.nanmean([v for n, v in metrics.items() if "_ap:" in n]))
    return metrics


def _peaks(onset: NDArray[np.float32]) -> int:
    """Maxima over time above a half; onset: (windows, frames, pitches)."""
    inner = onset[:, 1:-1]
    above = (inner > 0.5) & (inner >= onset[:, :-2]) & (inner > onset[:, 2:])
    return int(above.sum())
