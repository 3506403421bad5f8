"""What to do about what was found: one ranked list of ways out, the least destructive first."""
