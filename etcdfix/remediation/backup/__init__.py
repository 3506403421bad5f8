"""Backups: their file, and how they are made to last."""
