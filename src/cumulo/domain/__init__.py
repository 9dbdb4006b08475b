"""The words of Cumulo as frozen dataclasses, and the rules of their lifecycles. No input or output here.

Nothing in this package opens a file, reads a clock or draws randomness: times and random bytes are arguments.
"""
