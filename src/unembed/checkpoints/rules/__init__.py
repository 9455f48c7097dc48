"""The words in which a family is written: what becomes of each key, name and tensor of another program's file.

A key or tensor is used once or excused with a reason, and what is left stops the load by name. accounting.py is for keys
of a config, names.py for other spellings of tensor names, tensors.py for the tensors themselves, in both directions,
and ignoring.py for those that a user has left out.
Next to read: accounting.py; then ../families/base.py, which puts them together.
"""
