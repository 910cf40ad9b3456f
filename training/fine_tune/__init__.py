"""Fine-tuning of shipped weights on a folder of one's own recordings."""
