import pytest
import torch

from model.config import RSEConfig
from model.symbols import SymbolConfig, SymbolNetwork


@pytest.mark.parametrize("length", [1, 5, 8])
def test_symbol_0_pads_to_a_power_of_two(length: int) -> None:
    torch.manual_seed(0)
    network = SymbolNetwork(SymbolConfig(5, 3, RSEConfig(maps=8))).eval()
    symbols = torch.randint(1, 5, (2, length))
    padded = torch.cat([symbols, torch.zeros(2, 8 - length, dtype=torch.long)], dim=1)
    size = 2 if length == 1 else 8
    torch.testing.assert_close(network(symbols), network(padded[:, :size])[:, :length])
