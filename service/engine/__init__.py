"""Inference: windows of samples to probabilities, in batches, on CPUs and GPUs."""
