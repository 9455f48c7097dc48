"""What every setting of a run does, in a sentence each: the names that an error lists, and the page docs/settings.md.

A test holds the names here and the fields of the config together. The next file to read is config.py, which puts them in.
"""

WHAT: dict[str, str] = {
    "seed": "The one seed of a run: the start of the weights, the order of the windows, dropout, and the samples.",
    "steps": "Total number of optimizer steps, those already done included (also `--steps`).",
    "batch_size": "Windows of text in one forward and backward pass.",
    "accumulate": "Passes whose gradients are added up before one optimizer step.",
    "learning_rate": "The schedule's highest learning rate; the floor keeps its ratio to it.",
    "weight_decay": "AdamW's decay of matrices and tables; gains and biases never decay.",
    "dropout": "Share of the numbers that training sets to zero at each dropout.",
    "context_length": "Tokens of a window: what the model can look back on.",
    "tied": "Whether one table embeds the tokens and scores them; `false` gives the head a table of its own.",
    "sharing": "How table and head go together: `tied`, `untied`, `mapped` (through a learned square map) or `pseudo_inverse`.",
    "eval_every": "Steps between two evaluations on the held-out part; the last step is always evaluated.",
    "checkpoint_every": "Steps between two checkpoints; the last step is always saved.",
    "early_stop": "End after so many evaluations in a row without a better validation loss.",
    "sample_every": "Steps between two samples of what the model writes; they change no number of the training.",
    "tensorboard": "Also write events for TensorBoard beside metrics.jsonl; needs the extra `track`.",
    "eval_at_start": "Also evaluate before the first step; `false` saves the time of one evaluation.",
    "optimizer": "`adamw`, or `muon` for the matrices inside blocks, with AdamW for the rest.",
    "schedule": "`cosine`, or `plateau`: the peak is held, then the rate falls in a line.",
    "compile": "Compile the blocks with torch.compile: a slow first step, then faster ones; without a compiler it says so.",
    "checkpoint_activations": "Run each block again in the backward pass: less memory, a quarter more time, no other bit.",
    "chunked_loss": "Make the scores in pieces: much less memory with a large vocabulary; the loss is equal up to rounding.",
    "parallel": "How torchrun's processes share the model: none, ddp (each has all of it) or fsdp (each has a part).",
    "precision": "Type of the products: float32, or bfloat16 where the hardware has it; weights and moments stay float32.",
    "tying.gradient_every": "Steps between two notes of the token table's two gradients in tying.jsonl.",
    "tying.lookup_gradient_scale": "Factor on the part of the table's gradient that comes through looking rows up.",
    "training.schedule.floor": "The learning rate at the end of the schedule.",
    "training.schedule.warmup_steps": "Steps in which the learning rate rises from zero to its peak.",
    "training.schedule.decay_steps": "Steps over which the rate of a plateau falls at the end.",
    "training.optimizer.matrix_learning_rate": "Muon's own rate, where the schedule stands at its peak.",
    "training.optimizer.momentum": "How slowly Muon's mean of the gradients forgets.",
    "training.optimizer.beta1": "How slowly AdamW's mean of the gradients forgets.",
    "training.optimizer.beta2": "How slowly AdamW's mean of their squares forgets.",
    "training.optimizer.eps": "What AdamW adds to the root of that mean before it divides.",
    "training.clip_norm": "The largest norm of a step's gradient; longer ones are scaled down to it. `null` never clips.",
    "training.log_every": "Steps between two lines in metrics.jsonl.",
    "training.keep_every": "Steps between the checkpoints kept beyond the first, the best and the last two; `null` keeps none.",
    "init.std": "Standard deviation of the weights that a run starts with.",
}
# How text is read; taken out of the settings before a recipe sees them (corpora/reading.py).
READING: dict[str, str] = {
    "newlines": "Whether CRLF line ends stay or become LF (also `--newlines`).",
    "invalid_bytes": "Whether bytes that are no UTF-8 end the run before it begins, or are skipped.",
    "column": "The column of CSV, TSV and JSONL files that holds the text (also `--column`).",
}
# Settings that one recipe alone has.
OF_RECIPES: dict[str, tuple[str, str]] = {
    "minutes": ("small", "Time budget on two CPU cores, from which model and steps are chosen (also `--minutes`)."),
    "vocabulary": ("shared-table", "`characters`, or a number of byte-level BPE entries, learnt from the text."),
    "language": ("tour", "The language of the grammar: en, es or ko (also `--lang`)."),
}
# Settings that a run has only with a certain optimizer or schedule.
OF_KINDS: dict[str, str] = {
    "training.optimizer.matrix_learning_rate": "optimizer=muon",
    "training.optimizer.momentum": "optimizer=muon",
    "training.schedule.decay_steps": "schedule=plateau",
}
PAGE = "docs/settings.md"


def known_settings() -> str:
    """Every setting's name, in two lines that each fit into an error."""
    names = [*WHAT, *READING, *OF_RECIPES]
    short, paths = [n for n in names if "." not in n], [n for n in names if "." in n]
    return f"There are: {', '.join(short)},\n{', '.join(paths)}. {PAGE} says what each does."
