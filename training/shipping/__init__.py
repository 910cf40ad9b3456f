"""From a finished run to shipped weights: note tracker settings and the model card.

The last step of training; no other package imports it.
"""
