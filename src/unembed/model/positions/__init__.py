"""How a model knows order: added to the embedding (learned, sinusoidal) or inside attention (rotary, alibi).

Positions count real tokens only, from 0, whatever padding stands before them. The next file after these is ../norms.py.
"""
