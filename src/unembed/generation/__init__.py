"""From scores to text: sampling.py (pure: logits -> probabilities -> id), decode.py (the cached loop)."""
