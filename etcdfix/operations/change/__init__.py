"""What changes something: one key each, after a backup and with a record."""
