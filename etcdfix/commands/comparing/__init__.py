"""How copies of the same keys are held against each other."""
