"""The paper's network for LAMBADA in training."""

import torch
from torch import Tensor
from torch.nn import functional as F

from model.symbols import SymbolConfig, SymbolNetwork


class WordNetwork(SymbolNetwork):
    """A network over symbols that drops whole words while it trains (released code)."""

    def __init__(self, config: SymbolConfig, word_dropout: float) -> None:
        super().__init__(config)
        self.word_dropout = word_dropout

    def embed(self, symbols: Tensor) -> Tensor:
        """(batch, length) -> (batch, length, m), some words zero and the others scaled up."""
        x = super().embed(symbols)
        if not self.training or not self.word_dropout:
            return x
        return x * F.dropout(torch.ones_like(x[:, :, :1]), self.word_dropout)
