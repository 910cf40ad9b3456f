"""Workers own live streams and compute their messages. They are processes, or one thread."""
