"""The mathematics of a transformer, one concept a file, in the order in which a token meets them.

spec.py describes a model and imports no torch; counts.py does the accounts from the description alone. Then comes the
path: embed.py -> positions/ -> block.py (norms.py, masks.py, attention.py, mlp.py) -> head.py, all of it held together
by transformer.py and looked at through taps.py. init.py says what every number starts as.
"""
