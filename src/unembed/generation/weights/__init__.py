"""Other layouts of a model's matrices, for writing one token at a time: one token is bound by reading them, not by sums.

bags.py (how a matrix is cut), packing.py (one matrix), fresh.py (whether its copy is still of it), joined.py (one product
for several), modules.py and norms.py (modules that know a way for one row), copies.py (a model made of them), rounding.py
(what that does to the scores). The next file to read is bags.py.
"""
