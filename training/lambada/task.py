"""LAMBADA for the training loop (paper, section "LAMBADA question answering")."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from model.config import RSEConfig
from model.ranges import Count, Fraction, FromZero, checked
from model.symbols import EMBEDDING_DEVIATION, SymbolConfig
from training.lambada.data import Batches, Encoded
from training.lambada.network import WordNetwork
from training.lambada.reader import PREPROCESSING, Reader
from training.lambada.text.novels import Novels, is_collection, read_novels
from training.lambada.text.passages import (
    CutConfig,
    Passages,
    cut_passages,
    read_passages,
    read_training_passages,
    words_by_frequency,
)
from training.lambada.words.vectors import corpus_vectors
from training.lambada.words.vocabulary import Vocabulary, common_names, known_words
from training.loop.parallel import WHOLE, Share, is_first
from training.loop.symbol_losses import lambada_accuracy, lambada_loss, pointer_sum_loss

CLASSES = 3  # padding, other word, answer; only the last is trained (released code)
VOCABULARY = "vocabulary.json"


@checked()
class LambadaConfig:
    """Data, network and objective."""

    train: Path = Path("data/novels.tar.xz")
    """Novels (an archive or a folder of .txt files), from which passages are cut, or a file of
    passages, one a line, as LAMBADA's train.txt."""
    validation: Path = Path("data/lambada_development_plain_text.txt")
    """A file of passages; LAMBADA's development file."""
    preprocessing: Literal["clean", "released"] = "clean"
    """The released code's, or "clean" without its flaws: the mask is a separate symbol, unknown
    words are distinguished, and answers are compared as words."""
    vocabulary: int = 0
    """Size: the most frequent words; 0 for all."""
    numbered: int = 8
    """Different unknown words distinguished in a passage, of each kind: names or not, once
    in the passage or more often. Clean preprocessing only."""
    corpus_vectors: bool = False
    """Begin the learnt embedding with word vectors trained on the novels."""
    cut: CutConfig = field(default_factory=CutConfig)
    """Which passages are cut from novels."""
    rse: RSEConfig = field(default_factory=lambda: RSEConfig(maps=384))
    """The network."""
    length: int = 256
    """Positions of the network, a power of two."""
    padding: Literal["random", "front"] = "random"
    """Passages begin anywhere, as in the paper, or all end at the last position."""
    votes: Count = 10
    """Placings of a passage that vote when it is tested with random padding."""
    batch_size: Count = 64
    """Passages in an optimiser step."""
    objective: Literal["released", "sum"] = "released"
    """Every place of the answer gets an equal share, or only their sum counts."""
    smoothing: Fraction = 0.1
    """Probability that is spread over all positions; released objective only."""
    word_dropout: Fraction = 0.05
    """Probability of a word's vector being zero while training."""
    validation_passages: FromZero = 0
    """Passages from the start of the validation file; 0 for all."""

    def __post_init__(self) -> None:
        if self.length < 2 or self.length & (self.length - 1):
            raise ValueError(f"length must be a power of two: {self.length}")
        if self.corpus_vectors and not is_collection(self.train):
            raise ValueError("corpus_vectors needs novels to train on")


class LambadaTask:
    score = "accuracy"

    def __init__(self, config: LambadaConfig, folder: Path, resume: bool = False) -> None:
        """folder: of the run, which keeps the vocabulary beside the weights; `resume` reads it from
        there. Raises TextError, or WeightsError for the folder's contents.
        """
        self.config = config
        self.windows = config.batch_size
        self.preprocessing = PREPROCESSING[config.preprocessing]
        self._validation = read_passages(config.validation)
        self._passages: Passages | None = None
        start: Tensor | None = None
        if resume:
            self.vocabulary = Vocabulary.load(folder / VOCABULARY)
        else:
            self.vocabulary, start = self._prepare(folder)
        self.symbols = SymbolConfig(len(self.vocabulary), CLASSES, config.rse)
        network = WordNetwork(self.symbols, config.word_dropout)
        if start is not None:  # of the words, which are the last symbols
            network.embedding.weight.data[-len(start) :] = start
        self.network: nn.Module = network

    @contextlib.contextmanager
    def batches(
        self, seed: int, step: int = 0, share: Share = WHOLE
    ) -> Iterator[Iterator[Encoded]]:
        """An endless stream, a function of the seed, that begins at an optimiser step."""
        config = self.config
        if self._passages is None:
            self._passages = self._read_passages()[0]
        yield Batches(
            self._passages,
            self.vocabulary,
            self.preprocessing.encode,
            config.length,
            config.batch_size,
            config.padding == "random",
            seed,
            share,
        ).stream(step)

    def loss(self, batch: Encoded) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The objective; its part is the share of passages whose best position is right."""
        device = next(self.network.parameters()).device
        targets = torch.from_numpy(batch.targets).to(device)
        logits = self.network(torch.from_numpy(batch.inputs).to(device))
        if self.config.objective == "sum":
            loss = pointer_sum_loss(logits, targets)
        else:
            loss = lambada_loss(logits, targets, self.config.smoothing)
        return loss, {"accuracy": lambada_accuracy(logits.detach(), targets)}

    def validate(self, network: nn.Module) -> dict[str, float]:
        """Share of the validation passages whose last word is found."""
        passages = self._validation[: self.config.validation_passages or None]
        votes = self.config.votes if self.config.padding == "random" else 0
        reader = Reader(network, self.vocabulary, self.preprocessing, self.config.length, votes)
        return {"accuracy": float(reader.right(passages).mean())}

    def card(self) -> dict[str, Any]:
        data = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in asdict(self.config).items()
        }
        return {"name": "lambada", "config": self.symbols.to_json(), "data": data}

    def _read_passages(self) -> tuple[Passages, Sequence[str], Sequence[str], Novels | None]:
        """The passages, their words, most frequent first, the names that are known, and the
        novels that the passages are cut from."""
        config = self.config
        if not is_collection(config.train):
            passages = read_training_passages(config.train, config.length)
            return passages, words_by_frequency(passages), (), None
        novels = read_novels(config.train)
        cut = replace(config.cut, longest=min(config.cut.longest, config.length))
        passages = cut_passages(novels, cut)
        if config.preprocessing == "released":
            return passages, novels.words, (), novels
        return passages, known_words(novels), common_names(novels), novels

    def _prepare(self, folder: Path) -> tuple[Vocabulary, Tensor | None]:
        """Makes and keeps the vocabulary; the second result is what the embedding of its words
        begins with, if not random."""
        config = self.config
        self._passages, frequent, names, novels = self._read_passages()
        words = frequent[: config.vocabulary or None]
        if config.preprocessing == "released":
            vocabulary = Vocabulary.released(words)
        else:
            vocabulary = Vocabulary.clean(words, config.numbered, names)
        if is_first():
            vocabulary.save(folder / VOCABULARY)
        if not config.corpus_vectors or novels is None:
            return vocabulary, None
        vectors = corpus_vectors(novels, words, config.rse.maps, EMBEDDING_DEVIATION)
        return vocabulary, torch.from_numpy(vectors)
