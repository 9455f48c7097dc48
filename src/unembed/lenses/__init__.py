"""Reading the residual stream: what each layer would say if it were the last (logit_lens.py)."""
