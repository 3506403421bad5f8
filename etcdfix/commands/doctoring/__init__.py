"""The checks of ``etcdfix doctor``: one small function each, which yields what it found."""
