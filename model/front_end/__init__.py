"""From samples to features: the filterbank and its patches, the paper's convolutions."""
