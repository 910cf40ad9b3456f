"""Sheet music: beats, bars and key of a performance, quantised notes, and scores.

The libraries that engrave scores are imported on first use.
"""

SCORES = (".musicxml", ".mxl", ".xml", ".pdf")  # suffixes of score files
