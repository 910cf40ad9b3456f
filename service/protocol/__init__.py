"""Messages of the live protocol (PROTOCOL.md), options, errors and MIDI files. The package neither
imports torch nor opens sockets."""
