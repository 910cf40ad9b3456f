"""Novels as tokens and passages, before any vocabulary."""
