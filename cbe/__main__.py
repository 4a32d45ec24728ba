"""`python -m cbe`, for where the command itself is not on the path."""

from cbe.cli import main

if __name__ == "__main__":
    main()
