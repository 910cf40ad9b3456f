"""The messages of the live protocol, both ways, its error codes and its JSON Schema; MIDI files.

What PROTOCOL.md describes, and nothing that acts on it; no torch.
"""
