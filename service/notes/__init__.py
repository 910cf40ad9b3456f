"""Probabilities to notes: causal trackers, their events, and the notes of a performance."""
