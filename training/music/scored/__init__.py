"""Recordings with scores: alignment and training excerpts."""
