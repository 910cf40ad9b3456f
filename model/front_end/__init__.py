"""From samples to features: the constant-Q filterbank and its patches; the paper's convolutions.

Modules of the network alone; what only inference needs is in `model.fast`.
"""
