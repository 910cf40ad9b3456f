"""The paper's network for LAMBADA in training: word dropout, and vectors that stay outside."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from model.symbols import SymbolConfig, SymbolNetwork


class WordNetwork(SymbolNetwork):
    """A network over symbols that drops whole words while it trains (released code)."""

    def __init__(
        self, config: SymbolConfig, word_dropout: float, table: Tensor | None = None
    ) -> None:
        """table: (vocabulary, word_features), the frozen embedding where the config has one."""
        super().__init__(config)
        self.word_dropout = word_dropout
        if table is not None:
            self.embedding = FrozenEmbedding(table)  # type: ignore[assignment]

    def embed(self, symbols: Tensor) -> Tensor:
        """(batch, length) -> (batch, length, m), some words zero and the others scaled up."""
        x = super().embed(symbols)
        if not self.training or not self.word_dropout:
            return x
        return x * nn.functional.dropout(torch.ones_like(x[:, :, :1]), self.word_dropout)


class FrozenEmbedding(nn.Module):
    """Looks words up in a table outside the network's state.

    A million vectors take 1.2 GB: copies of the network share them, and files of weights omit them.
    They stay in main memory, and only the rows of a batch travel to the device.
    """

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self._table = (table,)  # a tuple, which hides it from the module's own book-keeping

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenEmbedding:
        return FrozenEmbedding(self._table[0])

    def forward(self, symbols: Tensor) -> Tensor:
        """(batch, length) -> (batch, length, word_features) on the device of the symbols."""
        return self._table[0][symbols.cpu()].to(symbols.device)
