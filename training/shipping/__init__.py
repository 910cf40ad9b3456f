"""Turns a finished run into shipped weights: note tracker settings and the model card."""
