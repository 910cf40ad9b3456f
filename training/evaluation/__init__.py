"""Measures models through the service's own pipeline; nothing is trained here."""
