"""The names of tensor axes. Every shape in a signature is written with these and with no other.

    batch     sequences that are computed side by side
    pos       positions of the queries: what is fed in this forward
    key_pos   positions of the keys: what was fed before (from a cache) and what is fed now
    d_model   width of the residual stream
    head      query heads
    kv_head   key and value heads; each serves head / kv_head query heads
    d_head    width of one head
    d_mlp     width of the MLP's inside
    vocab     rows of the token table, padding rows included
    layer     blocks, counted from 0

A file may use an axis of its own when its docstring says what it is. jaxtyping and beartype enforce the shapes in tests;
at run time they cost nothing. The next file to read is taps.py.
"""

AXES = ("batch", "pos", "key_pos", "d_model", "head", "kv_head", "d_head", "d_mlp", "vocab", "layer")
