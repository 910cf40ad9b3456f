"""Dead switch units: how many are left out; test_network.py shows that nobody misses them."""

from model.fast.pruning import prune


def test_one_position_needs_one_unit_then_two_then_four() -> None:
    units = [layer.units for layer in prune(8, 1, "deinterleave", (77,))]
    assert units == [128] * 8 + [64, 32, 16, 8, 4, 2, 1]
