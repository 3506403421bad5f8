"""The local providers: one module for each, and the arithmetic behind two of them."""
