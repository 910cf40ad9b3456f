"""What lies between an instrument and the samples: rooms, microphones, channels, background sound.

Sound in, sound out; nothing here depends on notes.
"""
