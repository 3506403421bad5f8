"""Files that we read and write: one reader, one writer, and what our own files hold."""
