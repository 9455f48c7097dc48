"""One format of files each: bytes <-> named tensors, by what the format says alone. What a model is, is not known here.

Our own are safetensors.py, safetensors_write.py and strict_json.py. Those of other programs: torch_files.py (which asks
pickle_scan.py first), gguf/, and two without names or lengths, llama2c.py and microgpt.py (over raw_numbers.py). pickles.py
refuses what could run code. Whatever a file claims is held against its size before memory is taken for it. Next to read:
safetensors.py; then ../run/__init__.py for our checkpoints, or ../rules/__init__.py for other programs'.
"""
