"""Processes that do pieces of work beside this one: what they are given and answer are bytes, in frames over pipes."""
