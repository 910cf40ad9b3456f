"""One performance, from bytes to note events, as plain objects without I/O, clocks or threads."""
