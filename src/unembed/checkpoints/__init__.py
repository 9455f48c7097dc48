"""Weights on disk: reading what may be hostile, and writing what may be interrupted.

In reading order: files.py (bytes that survive a kill), safetensors.py and encode.py (tensors as such bytes), native.py (a
checkpoint), run_folder.py (a run). Other programs' files: gguf.py, torch_files.py, llama2c.py, microgpt.py. pickles.py
refuses what could run code; strict_json.py, lock.py and metrics.py are the small parts of a run.
"""
