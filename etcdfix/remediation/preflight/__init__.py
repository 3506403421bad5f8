"""Every check before a change."""
