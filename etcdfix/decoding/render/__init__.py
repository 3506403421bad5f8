"""Decoded objects as the JSON that the API server would serve."""
