"""The microphone client's ends: audio from an input device, notes in the terminal.

Nothing here knows of sockets.
"""
