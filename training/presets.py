"""The presets of ``training.run``.

Every task has the presets ``minute``, the default, which needs no data; ``paper``, the paper's
network with the hyperparameters of the authors' released code; and ``paper-text``, which follows
the paper's text where the released code differs from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tyro.conf import Suppress

from model.config import (
    ACCURATE,
    LIGHT,
    LIVE,
    NOTE_HEADS,
    PAPER,
    PAPER_TEXT,
    TEXT_RSE,
    FilterbankConfig,
    RSEConfig,
)
from training.algorithmic.data import PROBLEMS
from training.algorithmic.task import AlgorithmicConfig, AlgorithmicTask
from training.lambada.task import LambadaConfig, LambadaTask
from training.loop.loop import LoopConfig, Task
from training.music.losses import DistillationConfig, HeadWeights
from training.music_task import MusicConfig, MusicTask
from training.musicnet.objective import TEXT_TERMS


@dataclass(frozen=True, kw_only=True)
class Run:
    """Options shared by the training runs of all tasks."""

    loop: LoopConfig = field(default_factory=LoopConfig)
    out: Path = Path("runs/latest")
    """Folder for weights, configuration and state of the run, and metrics.jsonl."""
    resume: bool = False  # Continue the run in the folder
    preset: Suppress[str] = ""  # Name of the preset from which the fields come

    def make_task(self) -> Task:
        """Return the task. Its constructor may write to the folder ``out``."""
        raise NotImplementedError

    def reads(self) -> dict[str, Path | None]:
        """Return the files and folders of the data, by option."""
        return {}


@dataclass(frozen=True, kw_only=True)
class AlgorithmicRun(Run):
    """One training run of an algorithmic task."""

    algorithmic: AlgorithmicConfig = field(default_factory=AlgorithmicConfig)

    def make_task(self) -> Task:
        return AlgorithmicTask(self.algorithmic)


@dataclass(frozen=True, kw_only=True)
class LambadaRun(Run):
    """One training run on LAMBADA."""

    lambada: LambadaConfig = field(default_factory=LambadaConfig)

    def make_task(self) -> Task:
        return LambadaTask(self.lambada, self.out, self.resume)

    def reads(self) -> dict[str, Path | None]:
        if self.lambada.made_up:
            return {}
        names = ["train", "validation"]
        if not self.resume:  # the folder of a run to resume has the vectors
            names.append("vectors")
        return {f"--lambada.{name}": getattr(self.lambada, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class MusicRun(Run):
    """One training run of the transcription task."""

    music: MusicConfig = field(default_factory=MusicConfig)
    init: str = ""
    """Initial weights: a shipped name or a .safetensors file. Their network may lack some of the
    heads of ``music.model``, and must otherwise be equal to it. Empty: random weights."""

    def make_task(self) -> Task:
        return MusicTask(self.music)

    def reads(self) -> dict[str, Path | None]:
        music = self.music
        if music.data == "musicnet":
            return {"--data-dir": music.archive}
        synth = {"--data-dir": music.synth.root, "--music.synth.real-root": music.synth.real_root}
        return synth if music.data == "synth" else {}


def by_the_text(loop: LoopConfig) -> LoopConfig:
    """Return the loop with standard RAdam, without weight decay or gradient clipping."""
    return replace(loop, optimizer="radam", weight_decay=0, gradient_clip=0)


def released_loop(maps: int, **fields: Any) -> LoopConfig:
    """Return a loop with the released code's optimiser for a network with ``maps`` features (m)."""
    rate = 0.00125 * (96 / maps) ** 0.5  # 8.84e-4 at 192
    return LoopConfig(optimizer="released", learning_rate=rate, warmup=0, average=0, **fields)


_PAPER_MUSIC = MusicConfig(
    model=PAPER, data="musicnet", batch_size=16, workers=8, validation_windows=1500
)
_PAPER_MUSIC_LOOP = released_loop(PAPER.rse.maps, steps=800_000, validate_steps=5000)

MUSIC_PRESETS: dict[str, MusicRun] = {
    # A small filterbank network, trained on synthetic tones.
    "minute": MusicRun(
        music=MusicConfig(
            model=replace(
                LIVE,
                name="minute",
                front_end=FilterbankConfig(channels=8, convolutions=1),
                rse=RSEConfig(maps=32, blocks=1, dropout=0.0),
                heads=NOTE_HEADS,
            ),
            data="tones",
            batch_size=16,
            validation_windows=200,
        ),
        loop=LoopConfig(steps=300, learning_rate=5e-3, average=0.98),
    ),
    # Starts from random weights. Needs two cores.
    "live": MusicRun(loop=LoopConfig(steps=11_500, validate_steps=1500)),
    # Continues `live`. Takes days on two cores.
    "live-on": MusicRun(
        music=MusicConfig(weights=HeadWeights(instrument=2)),
        loop=LoopConfig(steps=170_000, learning_rate=8e-4, warmup=0.002, validate_steps=1000),
        init="live",
    ),
    # Needs several times as much computation as `live`: ten minutes on a data-centre GPU, days on a
    # CPU.
    "accurate": MusicRun(
        music=MusicConfig(model=ACCURATE, batch_size=256, workers=12),
        loop=LoopConfig(steps=7_400, validate_steps=2500),
    ),
    # Continues `light`, the network for slow processors, with `live` as its teacher.
    "light": MusicRun(
        music=MusicConfig(model=LIGHT, distillation=DistillationConfig(teacher="live")),
        loop=LoopConfig(steps=12_000, learning_rate=1e-3, validate_steps=1500),
        init="light",
    ),
    # Trains on the MusicNet archive. Needs a GPU.
    "paper": MusicRun(music=_PAPER_MUSIC, loop=_PAPER_MUSIC_LOOP),
    "paper-text": MusicRun(
        music=replace(_PAPER_MUSIC, model=PAPER_TEXT, terms=TEXT_TERMS),
        loop=by_the_text(_PAPER_MUSIC_LOOP),
    ),
}


def algorithmic_presets(task: str) -> dict[str, AlgorithmicRun]:
    """Return the presets of an algorithmic task."""
    data = AlgorithmicConfig(task=task)  # type: ignore[arg-type]
    paper, text = (
        replace(rse, maps=192, blocks=PROBLEMS[task].blocks) for rse in (RSEConfig(), TEXT_RSE)
    )
    loop = released_loop(192, steps=20_000, validate_steps=500)
    muon = LoopConfig(optimizer="muon", learning_rate=0.02, validate_steps=500)
    return {
        # Sequences of up to 16 symbols.
        "minute": AlgorithmicRun(
            algorithmic=replace(
                data,
                rse=replace(paper, maps=48, dropout=0.0),
                bins=(8, 16),
                examples_per_length=2_000,
                validation_examples=256,
            ),
            loop=replace(muon, steps=700, average=0.98),
        ),
        # Half of the paper's width, for one core. The bins of longer sequences are added during the
        # first quarter of the training, so that short sequences are learnt first.
        "m96": AlgorithmicRun(
            algorithmic=replace(
                data,
                rse=replace(paper, maps=96, dropout=0.0),
                curriculum_steps=2_500,
                validation_examples=512,
            ),
            loop=replace(muon, steps=10_000),
        ),
        # The paper's network, trained as in the released code. Needs a GPU.
        "paper": AlgorithmicRun(algorithmic=replace(data, rse=paper), loop=loop),
        "paper-text": AlgorithmicRun(
            algorithmic=replace(data, rse=text, smoothing=0.0), loop=by_the_text(loop)
        ),
    }


_SMALL = LambadaConfig(length=128, votes=0, objective="sum", validation_passages=1000)
_PAPER_LAMBADA = LambadaConfig(
    train=Path("data/train.txt"), vectors=Path("data/wiki-news-300d-1M.vec")
)
_PAPER_LAMBADA_LOOP = released_loop(384, steps=20_000)

LAMBADA_PRESETS: dict[str, LambadaRun] = {
    # Synthetic passages.
    "minute": LambadaRun(
        lambada=replace(
            _SMALL,
            made_up=2_000,
            rse=RSEConfig(maps=32, blocks=1, dropout=0.0),
            length=32,
            batch_size=32,
            validation_passages=200,
        ),
        loop=LoopConfig(steps=500, learning_rate=4e-3, average=0.98),
    ),
    # The run whose results are in RESULTS.md.
    "novels": LambadaRun(
        lambada=replace(
            _SMALL, corpus_vectors=True, vocabulary=12_000, rse=RSEConfig(maps=96, blocks=1)
        ),
        loop=LoopConfig(steps=4_600, optimizer="muon", learning_rate=0.01, validate_steps=600),
    ),
    # Needs passages like the authors' train.txt, fastText's word vectors and a GPU.
    "paper": LambadaRun(lambada=_PAPER_LAMBADA, loop=_PAPER_LAMBADA_LOOP),
    "paper-text": LambadaRun(
        lambada=replace(
            _PAPER_LAMBADA, rse=replace(TEXT_RSE, maps=384), smoothing=0.0, word_dropout=0.0
        ),
        loop=by_the_text(_PAPER_LAMBADA_LOOP),
    ),
}

COMMANDS: dict[str, type[Run]] = {
    "musicnet": MusicRun,
    "algorithmic": AlgorithmicRun,
    "lambada": LambadaRun,
}


def presets_of(command: str, task: str) -> Mapping[str, Run]:
    """Return the presets of a command. task: the task of "algorithmic"."""
    if command == "algorithmic":
        return algorithmic_presets(task)
    return MUSIC_PRESETS if command == "musicnet" else LAMBADA_PRESETS
