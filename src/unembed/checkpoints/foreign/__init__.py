"""Whole files and folders of other programs: opened as they are, made a model, and written so that others can read them.

In: huggingface.py, gguf.py and single_files.py open a Source each; translate.py makes any Source a model, asking tie.py
whether the head is tied. Out: export.py for transformers, gguf_export.py for llama.cpp. What differs between models stands in
../families/, what differs between files in ../formats/. Next to read: huggingface.py; then ../load.py, which asks all of them.
"""
