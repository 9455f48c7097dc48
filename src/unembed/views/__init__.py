"""What can be told of a run, question by question: each function takes a run and gives a Result.

The list of them all is analyses.py; run.py here is what each of them is given. Read that first.
"""
