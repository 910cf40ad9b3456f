"""LAMBADA: the last word of a passage, chosen among the words that came before it.

Nothing here knows of audio.
"""
