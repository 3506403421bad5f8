"""From what a scan examines to what it reports."""
