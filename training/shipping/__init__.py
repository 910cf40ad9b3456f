"""From a finished run to shipped weights: note tracker settings and the model card."""
