"""Many broken objects at once: what each is, who makes it again, and in which order to act."""
