"""Singing with exact labels, made from recorded voices: their timbre, other melodies."""
