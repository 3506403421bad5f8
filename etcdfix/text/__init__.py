"""Text for people: safe to print, and commands that are safe to paste."""
