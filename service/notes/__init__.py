"""Probabilities to notes: the causal trackers, their events, the score of a performance."""
