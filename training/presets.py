"""The presets of ``training.run``.

Every task has ``minute``, which needs no data and is what a task alone runs; ``paper``, the
paper's network with the hyperparameters of the authors' released code; and ``paper-text``, which
follows the paper's text wherever the released code departs from it or adds to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tyro.conf import Suppress

from model.config import (
    ACCURATE,
    LIGHT,
    LIVE,
    NOTE_HEADS,
    PAPER,
    PAPER_TEXT,
    RELEASED_RSE,
    TEXT_RSE,
    FilterbankConfig,
    RSEConfig,
)
from training.algorithmic.data import PROBLEMS
from training.algorithmic.task import AlgorithmicConfig, AlgorithmicTask
from training.lambada.passages import CutConfig
from training.lambada.task import LambadaConfig, LambadaTask
from training.loop.config import LoopConfig
from training.loop.loop import Task
from training.music.losses import DistillationConfig, HeadWeights
from training.music_task import MusicConfig, MusicTask
from training.musicnet.objective import TEXT_TERMS


def released_learning_rate(maps: int) -> float:
    """The released code's learning rate for a network with this many maps (m)."""
    return 0.00125 * (96 / maps) ** 0.5  # 8.84e-4 at 192


@dataclass(frozen=True)
class MusicRun:
    """One training run of the transcription task."""

    music: MusicConfig = field(default_factory=MusicConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)
    init: str = ""
    """Initial weights: a shipped name or a .safetensors file of a network of the same kind with at
    most as many Beneš blocks and heads. Empty starts at random."""
    out: Path = Path("runs/musicnet")
    """Folder for weights, configuration and state of the run, and metrics.jsonl."""
    resume: bool = False
    """Continue the run in the folder."""
    preset: Suppress[str] = ""
    """Where the fields come from."""

    def make_task(self) -> Task:
        return MusicTask(self.music)

    def reads(self) -> dict[str, Path | None]:
        """The files and folders of its data, by the option that names each."""
        music = self.music
        if music.data == "musicnet":
            return {"--data-dir": music.archive.root}
        synth = {"--data-dir": music.synth.root, "--music.synth.real-root": music.synth.real_root}
        return synth if music.data == "synth" else {}


@dataclass(frozen=True)
class AlgorithmicRun:
    """One training run of an algorithmic task."""

    algorithmic: AlgorithmicConfig = field(default_factory=AlgorithmicConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)
    out: Path = Path("runs/algorithmic")
    """Folder for weights, configuration and state of the run, and metrics.jsonl."""
    resume: bool = False
    """Continue the run in the folder."""
    preset: Suppress[str] = ""
    """Where the fields come from."""

    def make_task(self) -> Task:
        return AlgorithmicTask(self.algorithmic)

    def reads(self) -> dict[str, Path | None]:
        """As of :class:`MusicRun`."""
        return {}


@dataclass(frozen=True)
class LambadaRun:
    """One training run on LAMBADA."""

    lambada: LambadaConfig = field(default_factory=LambadaConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)
    out: Path = Path("runs/lambada")
    """Folder for weights, vocabulary, configuration and state of the run, and metrics.jsonl."""
    resume: bool = False
    """Continue the run in the folder."""
    preset: Suppress[str] = ""
    """Where the fields come from."""

    def make_task(self) -> Task:
        return LambadaTask(self.lambada, self.out, self.resume)

    def reads(self) -> dict[str, Path | None]:
        """As of :class:`MusicRun`."""
        data = self.lambada
        names = () if data.made_up else ("train", "validation", "vectors")
        return {f"--lambada.{name}": getattr(data, name) for name in names}


Run = MusicRun | AlgorithmicRun | LambadaRun


def by_the_text(loop: LoopConfig) -> LoopConfig:
    """The textbook's RAdam in place of the released code's variant, its decay and clipping."""
    return replace(loop, optimizer="radam", weight_decay=0, gradient_clip=0)


_PAPER_MUSIC = MusicRun(
    MusicConfig(model=PAPER, data="musicnet", batch_size=16, workers=8, validation_windows=1500),
    LoopConfig(
        steps=800_000,
        optimizer="released",
        learning_rate=released_learning_rate(PAPER.rse.maps),
        average=0,
        warmup=0,
    ),
)

MUSIC_PRESETS: dict[str, MusicRun] = {
    # The weights in the package.
    "live": MusicRun(loop=LoopConfig(minutes=120, validate_minutes=15)),
    # A second stage, at a lower rate to keep what has been learned.
    "live-on": MusicRun(
        loop=LoopConfig(minutes=35, learning_rate=5e-4, validate_minutes=12), init="live"
    ),
    # The third generation: all families, in slices (--max-minutes, --resume).
    "live-every-voice": MusicRun(
        MusicConfig(weights=HeadWeights(instrument=2), validation_windows=100, family_passages=8),
        LoopConfig(steps=170_000, learning_rate=8e-4, warmup=0.002, validate_minutes=12),
        init="live",
    ),
    # Several times the work of "live": ten minutes of a data-centre GPU, days of a processor.
    "accurate": MusicRun(
        MusicConfig(model=ACCURATE, batch_size=256, workers=12),
        LoopConfig(minutes=8, validate_minutes=3),
    ),
    # "live" on a GPU, with "accurate" as its teacher.
    "live-taught": MusicRun(
        MusicConfig(
            batch_size=256, workers=12, distillation=DistillationConfig(teacher="accurate")
        ),
        LoopConfig(minutes=6, learning_rate=1e-3, validate_minutes=3),
        init="live",
    ),
    # For processors without bfloat16: "live" made narrower, which is also its teacher.
    "light": MusicRun(
        MusicConfig(model=LIGHT, distillation=DistillationConfig(teacher="live")),
        LoopConfig(minutes=120, learning_rate=1e-3, validate_minutes=15),
        init="live",
    ),
    # A small filterbank network on made-up tones.
    "minute": MusicRun(
        MusicConfig(
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
        LoopConfig(minutes=0.8, learning_rate=5e-3, average=0.98),
    ),
    # A few minutes on two cores, for a first try with data.
    "laptop": MusicRun(
        MusicConfig(validation_windows=300), LoopConfig(minutes=4, validate_minutes=2)
    ),
    # The paper's network on rendered sound, for hours on a CPU, beside "live" at equal hours.
    "waveform": MusicRun(
        MusicConfig(model=PAPER, batch_size=16, validation_windows=300),
        LoopConfig(
            minutes=240,
            learning_rate=released_learning_rate(PAPER.rse.maps),
            validate_minutes=15,
        ),
    ),
    # On the archive; needs a GPU.
    "paper": _PAPER_MUSIC,
    "paper-text": replace(
        _PAPER_MUSIC,
        music=replace(_PAPER_MUSIC.music, model=PAPER_TEXT, terms=TEXT_TERMS),
        loop=by_the_text(_PAPER_MUSIC.loop),
    ),
}


def algorithmic_presets(task: str) -> dict[str, AlgorithmicRun]:
    """Presets of one of the three tasks."""
    problem = PROBLEMS[task]
    data = AlgorithmicConfig(task=task)  # type: ignore[arg-type]
    loop = LoopConfig(validate_steps=500)
    released_loop = replace(
        loop,
        steps=20_000,
        optimizer="released",
        learning_rate=released_learning_rate(192),
        warmup=0,
        average=0,
    )
    paper = RSEConfig(maps=192, blocks=problem.blocks)
    text = replace(TEXT_RSE, maps=192, blocks=problem.blocks)
    released = replace(RELEASED_RSE, maps=192, blocks=problem.blocks)

    def on_a_cpu(maps: int) -> AlgorithmicRun:
        """Bins join over the first quarter, so that short sequences are learnt first."""
        return AlgorithmicRun(
            replace(
                data,
                rse=replace(paper, maps=maps, dropout=0.0),
                curriculum_steps=2_500,
                validation_examples=512,
            ),
            replace(loop, steps=10_000, optimizer="muon", learning_rate=0.02),
        )

    return {
        # The paper's network, trained as in the released code; needs a GPU.
        "paper": AlgorithmicRun(replace(data, rse=paper), released_loop),
        "paper-text": AlgorithmicRun(
            replace(data, rse=text, smoothing=0.0), by_the_text(released_loop)
        ),
        # The network as the released code computes it.
        "released": AlgorithmicRun(replace(data, rse=released), released_loop),
        # The paper's ablation study: longer sequences; vary rse with flags.
        "ablation": AlgorithmicRun(
            replace(data, rse=replace(paper, blocks=2), bins=(8, 16, 32, 64, 128)), released_loop
        ),
        # Half or all of the paper's width with the released code's batch, on one core.
        "m96": on_a_cpu(96),
        "m192": on_a_cpu(192),
        # Sequences of up to 16.
        "minute": AlgorithmicRun(
            replace(
                data,
                rse=replace(paper, maps=48, dropout=0.0),
                bins=(8, 16),
                examples_per_length=2_000,
                validation_examples=256,
            ),
            replace(loop, minutes=0.8, optimizer="muon", learning_rate=0.02, average=0.98),
        ),
        # A quarter of an hour on one core of a laptop.
        "laptop": AlgorithmicRun(
            replace(
                data,
                rse=replace(paper, maps=48, dropout=0.0),
                batch_size=16,
                validation_examples=512,
            ),
            replace(loop, steps=6_000, learning_rate=5e-3, bfloat16=False),
        ),
    }


_SMALL = LambadaConfig(
    vocabulary=3000,
    cut=CutConfig(ends="clause", common=1500),
    rse=RSEConfig(maps=64, blocks=1, dropout=0.0),
    length=128,
    padding="front",
    batch_size=32,
    objective="sum",
    validation_passages=1000,
)
_NOVELS = replace(
    _SMALL,
    corpus_vectors=True,
    cut=CutConfig(ends="word", common=500, targets="lambada"),
    batch_size=64,
)

_PAPER_LAMBADA = LambadaRun(
    LambadaConfig(
        train=Path("data/train.txt"),
        vectors=Path("data/wiki-news-300d-1M.vec"),
        preprocessing="released",
    ),
    LoopConfig(
        steps=20_000,
        optimizer="released",
        learning_rate=released_learning_rate(384),
        warmup=0,
        average=0,
        validate_steps=1000,
    ),
)

LAMBADA_PRESETS: dict[str, LambadaRun] = {
    # Needs the authors' train.txt, fastText's word vectors and a GPU.
    "paper": _PAPER_LAMBADA,
    "paper-text": LambadaRun(
        replace(
            _PAPER_LAMBADA.lambada,
            preprocessing="clean",
            rse=replace(TEXT_RSE, maps=384),
            smoothing=0.0,
            word_dropout=0.0,
        ),
        by_the_text(_PAPER_LAMBADA.loop),
    ),
    # Made-up passages.
    "minute": LambadaRun(
        replace(
            _SMALL,
            made_up=2_000,
            rse=RSEConfig(maps=32, blocks=1, dropout=0.0),
            length=32,
            validation_passages=200,
        ),
        LoopConfig(minutes=0.5, learning_rate=4e-3, average=0.98),
    ),
    # Beats the baselines after a few minutes on one core, without word vectors.
    "laptop": LambadaRun(
        _SMALL, LoopConfig(minutes=8, validate_minutes=2, learning_rate=4e-3, average=0.99)
    ),
    # The results in RESULTS.md.
    "novels": LambadaRun(
        replace(_NOVELS, vocabulary=12_000, rse=RSEConfig(maps=96, blocks=1)),
        LoopConfig(minutes=45, optimizer="muon", learning_rate=0.01, validate_minutes=6),
    ),
    # The paper's size on the same passages, without vectors from elsewhere; needs a GPU.
    "gpu": LambadaRun(
        replace(
            _NOVELS,
            vocabulary=30_000,
            rse=RSEConfig(maps=384, blocks=2),
            length=256,
            validation_passages=0,
        ),
        LoopConfig(
            steps=20_000, optimizer="muon", learning_rate=0.01, validate_steps=1000, patience=5
        ),
    ),
}


def presets_of(command: str, task: str) -> Mapping[str, Run]:
    """The presets of a command; task: of "algorithmic"."""
    if command == "algorithmic":
        return algorithmic_presets(task)
    return MUSIC_PRESETS if command == "musicnet" else LAMBADA_PRESETS


COMMANDS: dict[str, type[Run]] = {
    "musicnet": MusicRun,
    "algorithmic": AlgorithmicRun,
    "lambada": LambadaRun,
}
