"""The network arranged for inference: folded, fused, pruned, on GPUs by Triton.

Gives the answers of the network at the root of `model`; nothing here is trained.
"""
