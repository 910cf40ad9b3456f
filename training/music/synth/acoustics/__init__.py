"""Rooms, microphones, channels and background sound between an instrument and the samples.

Sound in, sound out; nothing here depends on notes.
"""
