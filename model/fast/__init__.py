"""The network arranged for inference: folded, fused, pruned, on GPUs by Triton.

Computes the same as the network at the root of `model`; nothing here is trained.
"""
