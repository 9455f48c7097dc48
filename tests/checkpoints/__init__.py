"""Tests of src/unembed/checkpoints; a package, because the tests share faults.py."""
