"""Dead switch units: how many are left out, and that nobody misses them."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from model.fast.pruning import prune
from model.shuffle import Direction, deinterleave, interleave


@given(
    bits=st.integers(1, 6),
    blocks=st.integers(1, 3),
    direction=st.sampled_from(["deinterleave", "interleave"]),
    data=st.data(),
)
def test_what_is_computed_is_what_the_whole_network_computes(
    bits: int, blocks: int, direction: Direction, data: st.DataObject
) -> None:
    n = 2**bits
    positions = tuple(data.draw(st.lists(st.integers(0, n - 1), min_size=1, unique=True)))
    seen: dict[str, torch.Tensor] = {}
    for name, read in (("whole", tuple(range(n))), ("pruned", positions)):
        x = torch.arange(n, dtype=torch.float64)[None, :, None].sin()
        for number, layer in enumerate(prune(bits, blocks, direction, read)):
            x = unit(x, number)
            assert x.shape[1] == 2 * layer.units
            if layer.gather is not None:
                x = x[:, list(layer.gather)]
            elif layer.shuffle == "deinterleave":
                x = deinterleave(x)
            elif layer.shuffle == "interleave":
                x = interleave(x)
        seen[name] = x
    # How many values a processor takes at once may change the last bits of a sine.
    torch.testing.assert_close(seen["pruned"], seen["whole"][:, list(positions)], atol=1e-9, rtol=0)


def unit(x: torch.Tensor, layer: int) -> torch.Tensor:
    """A switch that tells its inputs apart and the layers too."""
    first, second = x.view(1, -1, 2, 1).unbind(2)
    out = torch.stack([first + 0.3 * (second + layer).cos(), second - 0.7 * first.sin()], dim=2)
    return out.reshape(x.shape)


def test_one_position_needs_one_unit_then_two_then_four() -> None:
    units = [layer.units for layer in prune(8, 1, "deinterleave", (77,))]
    assert units == [128] * 8 + [64, 32, 16, 8, 4, 2, 1]
