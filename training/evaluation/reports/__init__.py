"""Measured scores pooled, tabulated and drawn."""
