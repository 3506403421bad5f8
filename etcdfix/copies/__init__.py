"""Where an object is still whole: one finder for each place, one order for what they find. It only reads."""
