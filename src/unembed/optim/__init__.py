"""How parameters move: which of them decay (adamw.py) and how far a step goes (schedules.py)."""
