"""The network arranged for inference: folded, pruned, streaming; nothing here is trained."""
