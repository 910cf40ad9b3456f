"""The pipeline of one performance, from bytes to note events, without I/O, clocks or threads."""
