"""The pictures of README and the documentation, and the program that makes them."""
