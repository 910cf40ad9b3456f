"""Beside the Switch Unit of `model.switch`: the gated one of the baseline, and whole layers as one
function with its own gradient.

`model.rse` chooses among them.
"""
