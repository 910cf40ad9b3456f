"""Audio input: converts PCM and files to mono samples at the model's rate, and finds the tuning."""
