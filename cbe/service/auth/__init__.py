"""Who may do what, and a record of who did."""
