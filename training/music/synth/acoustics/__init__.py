"""Rooms, microphones, channels and background sound; nothing here depends on notes."""
