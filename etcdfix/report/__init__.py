"""What commands report, as published structs, and how it is shown."""
