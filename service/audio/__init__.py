"""Sound on its way in: PCM and files to mono samples, resampled to the model's rate; tuning."""
