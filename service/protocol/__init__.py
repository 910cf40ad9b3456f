"""Messages of the live protocol (PROTOCOL.md), errors and MIDI files. Imports no torch and opens no
sockets."""
