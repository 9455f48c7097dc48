"""Weights on disk: reading what may be hostile, and writing what may be interrupted.

    files.py    bytes that survive a kill, for all that is written below
    formats/    a file <-> named tensors, one format each, every promise of the file checked first
    run/        our own: one checkpoint, and the folder that keeps a run's
    rules/      how another program's keys, names and tensors become ours, to be read in both directions
    families/   GPT-2, Llama, ...: a short file each, written in these rules
    foreign/    whole files and folders of other programs: opened, translated into a model, and written again
    load.py     any MODEL that a user may name, in memory; convert.py: into another format; inspect.py: what a file holds

Each line knows none below it (tests/test_layers.py), and each folder's `__init__.py` says where to begin. Weights of a run
stay with files.py, formats/ and run/; those of other programs pass through formats/, rules/, families/ and foreign/. Next
to read: files.py.
"""
