"""GGUF, llama.cpp's format of one file: keys and values, then tensors of many number types.

read.py reads a whole file, by the steps of values.py (keys and values) and quants.py (blocks of numbers); write.py writes
one. What keys and tensors mean for a model is told in ../../families/gguf.py and ../../foreign/gguf.py. Next to read: read.py.
"""
