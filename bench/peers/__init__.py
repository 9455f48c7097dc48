"""Other programs, restated in our own words, to measure ours against. Start with nanogpt.py."""
