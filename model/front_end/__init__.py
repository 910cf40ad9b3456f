"""Front-ends, which turn samples into features: the filterbank and the paper's convolutions."""
