"""What ``rescue`` asks for, and what it tells."""
