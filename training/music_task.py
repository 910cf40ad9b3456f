"""The music transcription task (paper, section "MusicNet").

Trains any transcription network. The loss is ``heads_loss`` on all usable frames. The paper's
strided network, which has only the frame head, has the loss ``frame_loss`` of the released code.
"""

import os
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import f1_score
from torch import Tensor, nn

from model.config import (
    CENTRE_FRAME,
    FRAMES,
    HOP,
    INSTRUMENT_HEADS,
    LIVE,
    PITCHES,
    SAMPLE_RATE,
    WINDOW,
    FilterbankConfig,
    ModelConfig,
)
from model.transcriber import StridedNetwork, TranscriptionModel
from model.validation import Count, NonNegativeInt, validated_dataclass
from training.arrays import F32, Rng
from training.music.families import (
    Windows,
    average_precision,
    family_metrics,
    family_windows,
    predict_windows,
    validation_passages,
)
from training.music.losses import (
    ClassShares,
    DistillationConfig,
    HeadWeights,
    Teacher,
    heads_loss,
    usable_frames,
)
from training.music.notes import notes_of
from training.music.synth.bank import HELD_OUT
from training.music.synth.config import CACHE, SynthConfig
from training.music.synth.dataset import Batch, empty_batch, synth_stream
from training.music.synth.scores import PITCH_HIGH, PITCH_LOW
from training.music.targets import ONSET_SCALE, PEDAL_SCALE, SCALES, Targets, segment_labels
from training.musicnet.objective import FrameTerms, frame_loss
from training.musicnet.windows import Archive

TONES = range(48, 84)  # pitches of synthetic windows
SCORED_LOOKAHEADS_MS = (50, 100, 200, 370)


@validated_dataclass()
class MusicConfig:
    """Data and objective of the transcription task."""

    model: ModelConfig = LIVE
    synth: SynthConfig = field(
        default_factory=lambda: SynthConfig(root=Path("data/synth"), cache=CACHE)
    )
    """The note bank and the scores from which the audio is rendered."""
    data: Literal["synth", "musicnet", "tones"] = "synth"
    """Rendered audio, recordings of the MusicNet archive, or tones, which need no data."""
    archive: Path = Path("data/musicnet")
    """Folder of the MusicNet archive. The resampled recordings (5 GB) are also stored there."""
    batch_size: Count = 24  # Windows per optimiser step
    workers: NonNegativeInt = 1  # Processes that render audio, or threads that read recordings
    weights: HeadWeights = field(default_factory=HeadWeights)
    terms: FrameTerms = field(default_factory=FrameTerms)
    """Loss terms of a strided network that only has the frame head."""
    distillation: DistillationConfig = field(default_factory=DistillationConfig)
    """Larger network whose predictions are mixed into the labels."""
    validation_windows: Count = 1000
    """Number of windows per validation on recordings of the archive or on tones."""
    family_passages: Count = 8
    """Number of passages of each family per validation for rendered audio. The mean score of all
    families selects the best weights."""


class MusicTask:
    """Trains a transcription network (``training.loop.loop.Task``)."""

    def __init__(self, config: MusicConfig) -> None:
        """Raises ValueError if the network's sample rate differs from that of rendered audio, or if
        its loss does not mask the uncertain labels of real recordings."""
        if config.data == "synth" and config.model.sample_rate != SAMPLE_RATE:
            raise ValueError(
                f"{config.model.name!r} is at {config.model.sample_rate} Hz, but rendered audio is "
                f"at {SAMPLE_RATE} Hz: set --music.model.sample-rate {SAMPLE_RATE}"
            )
        is_filterbank = isinstance(config.model.front_end, FilterbankConfig)
        is_masked = is_filterbank or len(config.model.heads) > 1
        if config.data == "synth" and config.synth.real_root and not is_masked:
            raise ValueError(
                "real recordings have uncertain labels, which the loss of a network with the frame "
                "head alone does not mask: leave out --music.synth.real-root"
            )
        self.config = config
        self.network: nn.Module = TranscriptionModel(config.model)
        self.score = "ap_middle"
        if is_filterbank:
            self.score = "ap_200ms"
            # With fixed constant-Q kernels, training takes a fifth less time, and the network
            # generalises better from rendered to recorded sound.
            self.network.get_submodule("network.filterbank").requires_grad_(False)
            convolutions = self.network.get_submodule("network.convolutions")
            # The channels-last layout is a sixth faster on CPUs. Weights and inputs must share it.
            convolutions.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            convolutions.register_forward_pre_hook(_channels_last)
        if config.model.calibration and not config.terms.calibration:
            self.network.get_parameter("scale").requires_grad_(False)
            self.network.get_parameter("offset").requires_grad_(False)
        self.frames = usable_frames(config.model)
        self.archive = (
            Archive(config.archive, config.model.sample_rate, config.model.context)
            if config.data == "musicnet"
            else None
        )
        self.teacher = (
            Teacher(config.distillation, config.model) if config.distillation.teacher else None
        )
        self.statistics = ClassShares()
        self._validation: Windows | None = None
        if config.data == "synth" and "onset" in config.model.heads:
            self.score = "families"

    def windows(self, steps: int) -> int:
        return steps * self.config.batch_size

    def batches(self, seed: int, step: int = 0) -> Generator[Batch, None, None]:
        """Return an endless stream of batches, rendered by processes or read by threads. Rendered
        music depends on the seed and the first step, so a resumed run trains on other music than
        an uninterrupted run. Other batches depend only on the seed and their step."""
        config = self.config
        if self.archive:
            return self.archive.batches(config.batch_size, seed, step, config.workers)
        if config.data == "tones":
            model = config.model
            return (
                tone_batch(np.random.default_rng((seed, at)), config.batch_size, model)
                for at in count(step)
            )
        size, context = config.batch_size, config.model.context
        return synth_stream(config.synth, size, context, config.workers, seed + step)

    def loss(self, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return the loss of ``self.network`` on a batch, and the loss's parts."""
        transcriber = self.network
        assert isinstance(transcriber, TranscriptionModel)
        device = next(transcriber.parameters()).device
        audio, labels = to_tensors(batch, device)
        labels = self.targets(audio, labels)
        strided, heads = transcriber.network, transcriber.config.heads
        if not isinstance(strided, StridedNetwork) or len(heads) > 1:
            logits = transcriber(audio)
            pitches = slice(PITCH_LOW, PITCH_HIGH + 1)
            weights, shares = self.config.weights, self.statistics
            return heads_loss(logits, heads, labels, self.frames, pitches, weights, shares)
        raw = strided.raw(strided.crop(audio))
        logits = strided.frames(raw)[:, 0]
        frame = labels.frame[:, self.frames]
        middle = logits.detach()[:, None, None, logits.shape[1] // 2]
        calibrated = transcriber.calibrate(middle)[:, 0, 0]
        return frame_loss(logits, raw[..., :PITCHES], calibrated, frame, self.config.terms)

    def targets(self, audio: Tensor, labels: Targets[Tensor]) -> Targets[Tensor]:
        """Return the targets of windows, (batch, samples): their labels, or labels mixed with the
        teacher's predictions."""
        return self.teacher.mixed(audio, labels) if self.teacher else labels

    def validate(self, network: nn.Module) -> dict[str, float]:
        """Return metrics on held-out data: average precision of the middle frame, as in the paper,
        for each look-ahead (with a filterbank), of the other heads, and by family."""
        assert isinstance(network, TranscriptionModel)
        if self._validation is None:
            self._validation = self._held_out()
        config = network.config
        predictions = {
            name: predict_windows(network, batch) for name, batch in self._validation.items()
        }
        columns = zip(*(batch.targets for batch in self._validation.values()), strict=True)
        targets = Targets(*map(np.concatenate, columns))

        def row(head: str) -> F32:  # one head at a time saves memory
            index = config.heads.index(head)
            return np.concatenate([predicted[:, index] for predicted in predictions.values()])

        metrics = {"ap_middle": average_precision(row("frame"), "frame", targets, CENTRE_FRAME)}
        has_filterbank = isinstance(config.front_end, FilterbankConfig)
        for head, name in (("frame", "ap"), ("onset", "onset_ap"), ("offset", "offset_ap")):
            if has_filterbank and head in config.heads:
                scores = row(head)
                for lookahead in SCORED_LOOKAHEADS_MS:
                    frame = FRAMES - int(lookahead * config.sample_rate / 1000 / HOP)
                    metrics[f"{name}_{lookahead}ms"] = average_precision(
                        scores, head, targets, frame
                    )
        metrics |= _notes_and_pedal(config.heads, row, targets)
        if self.score == "families":
            metrics |= family_metrics(config, predictions, self._validation)
        return metrics

    def _held_out(self) -> Windows:
        config = self.config
        if self.archive:
            return {"": self.archive.validation(config.validation_windows)}
        if config.data == "tones":
            rng = np.random.default_rng(7)
            return {"": tone_batch(rng, config.validation_windows, config.model)}
        passages = validation_passages(config.synth, config.family_passages)
        return family_windows(passages, config.model.context)

    def card(self) -> dict[str, Any]:
        model = self.config.model
        # Paths are meaningless to readers of a card.
        synth = asdict(self.config.synth).items()
        settings = {name: value for name, value in synth if not isinstance(value, os.PathLike)}
        settings["held_out"] = HELD_OUT
        source = {"synth": settings} if self.config.data == "synth" else {"tones": "made up"}
        data = {
            "batch_size": self.config.batch_size,
            **(self.archive.card() if self.archive else source),
        }
        card = {"name": model.name, "config": model.to_json(), "data": data}
        return card | ({"sources": self.teacher.sources} if self.teacher else {})


def tone_batch(rng: Rng, size: int, model: ModelConfig) -> Batch:
    """Return synthetic windows of one to five tones with random pitches, onsets and durations. The
    context of each window is silent. A filterbank network learns the tones within a minute."""
    batch = empty_batch(size, model.context)
    time_s = np.arange(WINDOW) / model.sample_rate
    partials = np.arange(1, 5)
    for row in range(size):
        tones = int(rng.integers(1, 6))
        pitch = rng.choice(TONES, tones, replace=False)
        onset = np.sort(rng.uniform(0, time_s[-1], tones))
        offset = onset + rng.uniform(0.1, 0.5, tones)
        for number, begin, end in zip(pitch, onset, offset, strict=True):
            is_sounding = (time_s >= begin) & (time_s < end)
            age_s = time_s[is_sounding] - begin
            turns = np.outer(partials, age_s) * 440 * 2 ** ((number - 69) / 12)
            tone = (np.sin(2 * np.pi * turns) / partials[:, None]).sum(axis=0)
            batch.audio[row, model.context :][is_sounding] += 0.1 * np.exp(-3 * age_s) * tone
        labels = segment_labels(notes_of(onset, offset, pitch), model.sample_rate)
        for target, label in zip(batch.targets, labels, strict=True):
            target[row] = label
    return batch


def to_tensors(batch: Batch, device: torch.device) -> tuple[Tensor, Targets[Tensor]]:
    """Return the audio, (batch, samples), and the targets as float32 tensors."""

    def scaled(values: NDArray[Any], scale: int) -> Tensor:
        return torch.from_numpy(values).to(device, non_blocking=True).float() / scale

    return scaled(batch.audio, 1), Targets(*map(scaled, batch.targets, SCALES))


def _notes_and_pedal(
    heads: tuple[str, ...], row: Callable[[str], F32], targets: Targets[NDArray[np.uint8]]
) -> dict[str, float]:
    """Return the correlation of velocities and the accuracy of instruments at onsets, and the F1 of
    the pedal. Uses the frames from a window's middle to 200 ms before its end."""
    metrics = {}
    frames = slice(CENTRE_FRAME, FRAMES - 17)
    velocity, instrument = targets.velocity[:, frames], targets.instrument[:, frames]
    at_onset = targets.onset[:, frames] > ONSET_SCALE * 0.8
    has_velocity = at_onset & (velocity > 0)
    if "velocity" in heads and has_velocity.any():
        predicted = row("velocity")[:, frames][has_velocity]
        correlation = np.corrcoef(predicted, velocity[has_velocity])
        metrics["velocity_correlation"] = float(correlation[0, 1])
    has_instrument = at_onset & (instrument > 0)
    if INSTRUMENT_HEADS[0] in heads and has_instrument.any():
        scores = np.stack([row(head)[:, frames][has_instrument] for head in INSTRUMENT_HEADS])
        is_correct = scores.argmax(axis=0) + 1 == instrument[has_instrument]
        metrics["instrument_accuracy"] = float(is_correct.mean())
    has_pedal = targets.pedal[:, frames] <= PEDAL_SCALE
    if "pedal" in heads and has_pedal.any():
        is_down = targets.pedal[:, frames][has_pedal] > PEDAL_SCALE // 2
        is_predicted = row("pedal")[:, frames, PITCH_LOW][has_pedal] > 0.5
        metrics["pedal_f1"] = float(f1_score(is_down, is_predicted, zero_division=0.0))
    return metrics


def _channels_last(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x.contiguous(memory_format=torch.channels_last) for x in inputs)
