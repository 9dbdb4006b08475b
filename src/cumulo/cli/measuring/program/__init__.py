"""Measures a training step of a person's own PyTorch script, without a GPU: what `cumulo advise --torch` starts.

It runs in the Python that has the script's packages, so it uses the standard library and PyTorch alone and imports
nothing of Cumulo but its own modules, relatively. Whatever the script would put on a GPU is a **fake tensor** here:
shape, type and memory, no values. Data stays on the host, real, so that loaders and tokenizers work. Where the script
reads a value from the GPU (to print a loss) it gets a stand-in, 1, and the answer says at which line.
"""
