"""Training: what a run is told (config.py) and the loop itself (loop.py).

It takes observers and knows none of the analyses; devices and processes are applied from outside the model.
"""
