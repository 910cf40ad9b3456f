"""Measured scores pooled, tabulated and drawn.

Nothing is transcribed here.
"""
