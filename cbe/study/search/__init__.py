"""What is tried next: samplers, schedulers, and who of a race goes on."""
