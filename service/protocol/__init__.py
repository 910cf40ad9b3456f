"""The messages of the live protocol, both ways, its error codes; MIDI files.

What PROTOCOL.md describes; no torch, sockets or HTTP.
"""
