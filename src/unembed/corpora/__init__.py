"""Where sequences come from: grammars whose exact probabilities are known, and readers of files.

Start with grammar/, whose sentences the tour learns from.
"""
