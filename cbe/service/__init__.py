"""The service: studies submitted, kept running and shown over HTTP."""
