"""Converts probabilities to notes: causal trackers, their events, and completed notes."""
