"""Audio input: PCM and files to mono samples, resampled to the model's rate; tuning."""
