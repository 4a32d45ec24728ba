"""Studies that run elsewhere: on a service, or on a Ray cluster alone."""
