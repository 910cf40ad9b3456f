"""The network alone, on processors and GPUs."""
