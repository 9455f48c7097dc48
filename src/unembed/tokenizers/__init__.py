"""Between text and ids: characters, words and subwords, without torch. Read base.py first."""
