"""The network arranged for inference: folded, pruned, streaming.

Computes the same as the network at the root of `model`; nothing here is trained.
"""
