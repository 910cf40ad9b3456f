"""The messages of the live protocol, both ways, its error codes and its JSON Schema; MIDI files.

What PROTOCOL.md describes, and the tempo of its MIDI files; no torch, sockets or HTTP.
"""
