"""Music on paper: beats, bars and key of a performance, its notes on their grid, and scores.

Pure functions of notes; what writes and engraves scores is imported only when asked for.
"""

SCORES = (".musicxml", ".pdf")  # endings of files that hold a score
