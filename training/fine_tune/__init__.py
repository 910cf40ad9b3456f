"""Fine-tuning of shipped weights on a folder of the user's recordings."""
