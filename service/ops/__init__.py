"""Metrics, logs and admission control."""
