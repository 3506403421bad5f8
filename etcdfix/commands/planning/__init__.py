"""What a plan is made of, and how it is worked through."""
