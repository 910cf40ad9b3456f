"""LAMBADA for the training loop (paper, section "LAMBADA question answering")."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import torch as safetensors_torch
from torch import Tensor, nn

from model.config import RSEConfig
from model.storage import read_tensors, write_atomically
from model.symbols import EMBEDDING, EMBEDDING_DEVIATION, SymbolConfig, SymbolNetwork
from model.validation import Count, Fraction, NonNegativeInt, validated_dataclass
from training.lambada.novels import Novels, is_collection, read_novels
from training.lambada.passages import (
    Passages,
    cut_passages,
    read_passages,
    read_training_passages,
    synthetic_passages,
)
from training.lambada.reader import Encoded, Reader, encode, place
from training.lambada.words import Vocabulary, corpus_vectors, embedding_table, read_vectors
from training.loop.symbol_losses import (
    lambada_accuracy,
    lambada_loss,
    pointer_sum_loss,
    shuffled_rows,
)

CLASSES = 3  # padding, other word, answer; only the answer is trained (released code)
PADDING_STREAM = 2**32  # part of the seed of the placements; exceeds the number of any epoch
VOCABULARY = "vocabulary.json"
VECTORS = "vectors.safetensors"  # frozen embedding, shared by the weights in its folder


class WordNetwork(SymbolNetwork):
    """A symbol network that drops the vectors of complete words in training (released code)."""

    def __init__(
        self, config: SymbolConfig, word_dropout: float, table: Tensor | None = None
    ) -> None:
        """table: the frozen embedding, if the config has one, (vocabulary, word_features)."""
        super().__init__(config)
        self.word_dropout = word_dropout
        if table is not None:
            self.embedding = FrozenEmbedding(table)  # type: ignore[assignment]

    def embed(self, symbols: Tensor) -> Tensor:
        """Map (batch, length) to (batch, length, m). In training, the vectors of some words are set
        to zero, and all other vectors are scaled up."""
        x = super().embed(symbols)
        return x * nn.functional.dropout(
            torch.ones_like(x[:, :, :1]), self.word_dropout, training=self.training
        )


class FrozenEmbedding(nn.Module):
    """Embedding whose table is not part of the network's state. A million vectors need 1.2 GB, so
    copies of the network share the table, and files of weights omit it. The table remains in main
    memory, and only the vectors of a batch are copied to the device."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self._table = (table,)  # a tuple, so that it is neither a parameter nor a buffer

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenEmbedding:
        return FrozenEmbedding(self._table[0])

    def forward(self, symbols: Tensor) -> Tensor:
        """Map (batch, length) to (batch, length, word_features), on the device of the symbols."""
        return self._table[0][symbols.cpu()].to(symbols.device)


@validated_dataclass()
class LambadaConfig:
    """Data, network and objective."""

    train: Path = Path("data/novels.tar.xz")
    """Novels (an archive or a folder of .txt files), from which passages are cut, or a file of
    passages, one per line, like LAMBADA's train.txt."""
    validation: Path = Path("data/lambada_development_plain_text.txt")
    """A file of passages, such as LAMBADA's development file."""
    vectors: Path | None = None
    """File of word vectors (fastText's .vec or GloVe's) for a frozen embedding; None: learn it."""
    made_up: NonNegativeInt = 0
    """Number of synthetic passages that replace the files; 0: read the files."""
    vocabulary: NonNegativeInt = 0
    """Number of words: the most frequent, or the first vectors; 0: all."""
    corpus_vectors: bool = False
    """Initialise the learned embedding with word vectors trained on the novels."""
    rse: RSEConfig = field(default_factory=lambda: RSEConfig(maps=384))  # The network
    length: int = 256  # Positions of the network, a power of two
    votes: NonNegativeInt = 10
    """Number of random placements of a passage that vote in evaluation, as in the paper. 0:
    passages end at the last position, also in training."""
    batch_size: Count = 64  # Passages in an optimiser step
    objective: Literal["shared", "sum"] = "shared"
    """"shared": equal targets for all occurrences of the answer (released code); "sum": the loss
    depends only on the sum of their probabilities."""
    smoothing: Fraction = 0.1
    """Target probability that is spread over all positions, for the objective "shared"."""
    word_dropout: Fraction = 0.05  # Probability that the vector of a word is zero in training
    validation_passages: NonNegativeInt = 0  # Number of validation passages, from the start; 0: all

    def __post_init__(self) -> None:
        if self.length < 2 or self.length & (self.length - 1):
            raise ValueError(f"length must be a power of two, at least 2: {self.length}")
        if self.corpus_vectors and (self.vectors or not is_collection(self.train)):
            raise ValueError("corpus_vectors requires novels to train on, and no other vectors")


class LambadaTask:
    """LAMBADA (``training.loop.loop.Task``)."""

    score = "accuracy"
    statistics = nn.Module()  # without buffers

    def __init__(self, config: LambadaConfig, folder: Path, resume: bool = False) -> None:
        """Args:
            folder: folder of the run, to which vocabulary and vectors are written.
            resume: True to read vocabulary and vectors from the folder.

        Raises:
            OSError, ValueError: a file is missing or corrupt, or ``made_up`` replaces the novels
                that ``corpus_vectors`` requires.
        """
        if config.made_up:
            paths = [folder / "made_up_train.txt", folder / "made_up_validation.txt"]
            for seed, path in enumerate(paths):
                text = synthetic_passages(np.random.default_rng(seed), config.made_up)
                write_atomically(path, text.encode())
            config = replace(config, train=paths[0], validation=paths[1])
        self.config = config
        self._validation = list(read_passages(config.validation))
        self._passages: Passages | None = None
        start: Tensor | None = None
        if resume:
            self.vocabulary = Vocabulary.load(folder / VOCABULARY)
            table = read_tensors(folder / VECTORS)[EMBEDDING] if config.vectors else None
        else:
            self.vocabulary, table, start = self._prepare(folder)
        self.symbols = SymbolConfig(
            len(self.vocabulary),
            CLASSES,
            config.rse,
            word_features=0 if table is None else table.shape[1],
        )
        network = WordNetwork(self.symbols, config.word_dropout, table)
        if start is not None:
            network.embedding.weight.data[-len(start) :] = start
        self.network: nn.Module = network

    def windows(self, steps: int) -> int:
        return steps * self.config.batch_size

    def batches(self, seed: int, step: int = 0) -> Generator[Encoded, None, None]:
        """Return batches without end, starting with the batch of ``step``. Batches depend only on
        the seed and the step. Raises OSError or TextError if the passages cannot be read."""
        config = self.config
        if self._passages is None:
            self._passages = self._read_passages()[0]
        passages = self._passages

        def batch(at: int) -> Encoded:
            rows = shuffled_rows(len(passages), config.batch_size, at, seed)
            # Seeded by the step, so that placements do not depend on the previous steps.
            shifts = np.random.default_rng((seed, PADDING_STREAM, at)).random(config.batch_size)
            placed = []
            for row, shift in zip(rows, shifts, strict=True):
                encoded = encode(self.vocabulary, passages[row])
                room = config.length - len(encoded.inputs)
                offset = int(shift * (room + 1)) if config.votes else room
                placed.append(place(encoded, config.length, offset))
            return Encoded(*np.stack(placed, axis=1))

        return (batch(at) for at in count(step))

    def loss(self, batch: Encoded) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return the loss, and the share of passages whose most probable position is right."""
        device = next(self.network.parameters()).device
        targets = torch.from_numpy(batch.targets).to(device)
        logits = self.network(torch.from_numpy(batch.inputs).to(device))
        if self.config.objective == "sum":
            loss = pointer_sum_loss(logits, targets)
        else:
            loss = lambada_loss(logits, targets, self.config.smoothing)
        return loss, {"accuracy": lambada_accuracy(logits.detach(), targets)}

    def validate(self, network: nn.Module) -> dict[str, float]:
        """Return the share of validation passages with the right answer."""
        passages = self._validation[: self.config.validation_passages or None]
        reader = Reader(network, self.vocabulary, self.config.length, self.config.votes)
        return {"accuracy": float(reader.right(passages).mean())}

    def card(self) -> dict[str, Any]:
        data = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in asdict(self.config).items()
        }
        card = {"name": "lambada", "config": self.symbols.to_json(), "data": data}
        return card | ({"vectors": VECTORS} if self.config.vectors else {})

    def _read_passages(self) -> tuple[Passages, Novels | None]:
        """Return the passages, and the novels from which they were cut."""
        config = self.config
        if not is_collection(config.train):
            return read_training_passages(config.train, config.length), None
        novels = read_novels(config.train)
        return cut_passages(novels, config.length), novels

    def _prepare(self, folder: Path) -> tuple[Vocabulary, Tensor | None, Tensor | None]:
        """Build and store the vocabulary and, if there are vectors, their table. Return the
        vocabulary, the table or None, and the initial values of the learned embedding or None."""
        config = self.config
        words: Sequence[str]
        names: Sequence[str] = ()
        table = start = None
        if config.vectors:
            words, vectors = read_vectors(config.vectors, config.vocabulary)
            table = torch.from_numpy(embedding_table(vectors))
            write_atomically(folder / VECTORS, safetensors_torch.save({EMBEDDING: table}))
        else:
            self._passages, novels = self._read_passages()
            if novels:
                words, names = novels.shared_words()
            else:
                words = self._passages.words_by_frequency()
            words = words[: config.vocabulary or None]
            if config.corpus_vectors and novels:
                drawn = corpus_vectors(novels, words, config.rse.maps, EMBEDDING_DEVIATION)
                start = torch.from_numpy(drawn)
        vocabulary = Vocabulary(tuple(words), frozenset(names))
        vocabulary.save(folder / VOCABULARY)
        return vocabulary, table, start
