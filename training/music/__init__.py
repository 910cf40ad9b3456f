"""Music to train on: notes and recordings as labels, losses, metrics."""
