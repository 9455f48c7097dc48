"""Training: what a run is told (config.py), the loop itself (loop.py) and how it is stopped (signals.py).

It takes observers and knows none of the analyses; devices and processes are applied from outside the model.
"""
