"""Workers own the streams: processes, or a thread of this one, that turn audio into messages."""
