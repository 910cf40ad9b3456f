"""Recorded instruments: the note bank, their classes and dynamic layers, casting for scores.

Nothing here knows of rooms or noise.
"""
