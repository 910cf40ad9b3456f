"""Measurements of speed: printed, kept as JSON, never asserted."""
