"""A study's report: one page that holds everything it needs."""
