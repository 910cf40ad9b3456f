"""Measuring models through the pipeline that users get: reports, conditions, pictures.

Uses the service's sessions; nothing here trains.
"""
