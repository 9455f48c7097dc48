"""Other layouts of a model's matrices, for writing one token at a time: one token is bound by reading them, not by sums.

packing.py (one matrix), fresh.py (whether its copy is still of it), parts.py (one product for several), modules.py
(modules that hold packed ones), together.py (float32: nothing is packed, only moved), copies.py (a model made of them),
rounding.py (what that does to the scores). The next file to read is packing.py.
"""
