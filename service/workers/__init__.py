"""Workers: processes, or one thread of the service, that own streams and compute their messages."""
