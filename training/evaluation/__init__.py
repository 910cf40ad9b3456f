"""Evaluates models with the service's pipeline. Nothing is trained here."""
