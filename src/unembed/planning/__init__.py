"""What a model costs, from its description alone: operations (flops.py), memory for training (memory.py, kept.py)."""
