"""The network arranged for inference: folded, pruned and streaming. Nothing here is trained."""
