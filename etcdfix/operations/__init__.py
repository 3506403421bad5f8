"""What a person asks for: one module a command, without options and exit codes."""
