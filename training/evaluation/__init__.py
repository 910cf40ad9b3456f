"""Measures models through the service's own pipeline: reports and pictures.

Uses the service's sessions; nothing is trained here.
"""
