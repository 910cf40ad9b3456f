"""Recorded instruments: the note bank, casting for scores, melodic lines."""
