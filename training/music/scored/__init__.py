"""Recordings with the scores that they play: their alignment, and training excerpts of them."""
