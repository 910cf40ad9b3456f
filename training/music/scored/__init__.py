"""Recordings with scores: alignment and training excerpts.

Nothing is rendered here.
"""
