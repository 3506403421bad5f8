"""What ``copies`` looks for, and what the datastore keeps of it."""
