"""The space of token vectors: who is near whom (neighbours.py) and what it looks like from far away (projections.py)."""
