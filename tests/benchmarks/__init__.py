"""Benchmarks of speed and accuracy. They print figures or write JSON, and assert nothing."""
