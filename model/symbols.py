"""Symbol networks, for the algorithmic tasks and LAMBADA (paper, section "Evaluation").

Each network has an embedding, a shuffle-exchange network and a linear output at every position.
"""

from __future__ import annotations

from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from model.config import RSEConfig
from model.rse import ResidualShuffleExchange, padded_length
from model.storage import WeightsError, load_weights, read_card, read_tensors, resolve
from model.switch import initialise
from model.validation import Count, NonNegativeInt, validated_dataclass

KIND = "symbols"  # marks these configurations in cards
EMBEDDING = "embedding.weight"  # name of the tensor in a file that contains only a frozen embedding
EMBEDDING_DEVIATION = 0.25  # the standard deviation that the switch units preserve


@validated_dataclass()
class SymbolConfig:
    """A network that maps symbols to classes."""

    vocabulary: Count  # number of input symbols; symbol 0 is padding
    classes: Count  # number of output classes at each position
    rse: RSEConfig = field(default_factory=RSEConfig)
    word_features: NonNegativeInt = 0
    """Width of a frozen pre-trained embedding, which a linear layer maps to m features. 0 means a
    learned embedding of width m."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary that :meth:`from_json` reads back."""
        return {"kind": KIND, **asdict(self)}

    @classmethod
    def from_json(cls, data: Any) -> SymbolConfig:
        """Return the configuration in a card. Raises ValueError for invalid fields, and for other
        kinds of networks."""
        if not isinstance(data, dict) or data.get("kind") != KIND:
            raise ValueError("not the configuration of a symbol network")
        return cls(**{name: value for name, value in data.items() if name != "kind"})


class SymbolNetwork(nn.Module):
    """Maps symbols, (batch, length), to logits, (batch, length, classes)."""

    def __init__(self, config: SymbolConfig) -> None:
        super().__init__()
        maps = config.rse.maps
        self.config = config
        words = config.word_features
        self.embedding = nn.Embedding(config.vocabulary, words or maps)
        self.embedding_linear = nn.Linear(words, maps) if words else None
        self.rse = ResidualShuffleExchange(config.rse)
        self.output = nn.Linear(maps, config.classes)
        std = EMBEDDING_DEVIATION
        nn.init.trunc_normal_(self.embedding.weight, std=std, a=-2 * std, b=2 * std)
        if self.embedding_linear is not None:
            self.embedding.weight.requires_grad_(False)
            initialise(self.embedding_linear)
        initialise(self.output)

    def embed(self, symbols: Tensor) -> Tensor:
        """Map (batch, length) to (batch, length, m)."""
        x: Tensor = self.embedding(symbols)
        return x if self.embedding_linear is None else self.embedding_linear(x)

    def forward(self, symbols: Tensor) -> Tensor:
        """Map symbols, (batch, length), to logits, (batch, length, classes). Symbol 0 pads the
        sequence to a power of two (released code)."""
        length = symbols.shape[1]
        padded = F.pad(symbols, (0, padded_length(length) - length))
        out: Tensor = self.output(self.rse(self.embed(padded)))
        return out[:, :length]


def load_symbol_network(path: str | Path) -> SymbolNetwork:
    """Load a symbol network in evaluation mode. Raises WeightsError. If the card has "vectors", it
    names a file in the same folder with the frozen embedding, which several networks can share."""
    path = resolve(path)
    card = read_card(path)
    try:
        config = SymbolConfig.from_json(card["config"])
    except (TypeError, ValueError) as error:
        raise WeightsError(f"{path}: {error}") from error
    network = SymbolNetwork(config)
    tensors = read_tensors(path)
    if card.get("vectors"):
        tensors |= read_tensors(path.with_name(Path(str(card["vectors"])).name))
    load_weights(network, tensors, path)
    return network.eval()
