"""Probabilities to notes: the causal tracker, its events, the score of a performance, MIDI files.

Nothing here knows of audio, engines or clients.
"""
