"""What `import unembed` offers: one call for each thing that a notebook wants, none with logic of its own.

The command line (cli/) calls the same pieces. The file to read first is models.py.
"""
