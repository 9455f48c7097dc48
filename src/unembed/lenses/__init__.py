"""Reading a model: what each layer would say if it were the last (logit_lens.py, tables.py), and an exam (agreement.py)."""
