"""`python -m clove` is the command `clove`."""

from clove.cli import main

if __name__ == "__main__":
    main()
