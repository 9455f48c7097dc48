"""Lets `python -m unembed` be the command `unembed`."""

from unembed.cli.main import main

if __name__ == "__main__":
    main()
