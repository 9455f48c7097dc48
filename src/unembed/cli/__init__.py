"""The command line: the only place that writes to a terminal. main.py lists the commands; each has a file of its own."""
