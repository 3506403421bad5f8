"""Forms of reports that have no document yet."""
