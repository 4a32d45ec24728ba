"""What a study found, read from its tables alone."""
