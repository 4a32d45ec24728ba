"""What a study will take, and what it may still spend."""
