"""One performance from its bytes to its notes, live or from a file: options, limits, resumption.

Joins `audio`, `engine` and `notes`. Nothing here knows of sockets or HTTP.
"""
