"""References that are generated from the code when the site is built, one module each."""
