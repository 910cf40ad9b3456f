"""Inference: windows of samples to probabilities, in batches, on CPUs and GPUs.

Independent of clients and sessions, and of how probabilities become notes.
"""
