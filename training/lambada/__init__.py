"""LAMBADA: the last word of a passage, chosen among the words that came before it."""
