"""The commands: each takes a request, and returns what it found or did as a published struct."""
