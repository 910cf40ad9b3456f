"""The messages of the live protocol (PROTOCOL.md), MIDI files; no torch, sockets or HTTP."""
