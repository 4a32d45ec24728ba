"""Submitted studies: what is wanted of each, whose turn it is, and the Ray jobs that run them."""
