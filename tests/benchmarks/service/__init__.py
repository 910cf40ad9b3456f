"""The service in a process of its own: recordings and live streams."""
