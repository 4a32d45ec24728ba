"""The service as a web application; the page itself is in static/."""
