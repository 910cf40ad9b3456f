"""LAMBADA: predicts the last word of a passage, chosen among the words before it."""
