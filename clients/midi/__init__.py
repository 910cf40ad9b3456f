"""Notes as MIDI: collected, written to files on a beat, played on a port.

Nothing here knows of connections.
"""
