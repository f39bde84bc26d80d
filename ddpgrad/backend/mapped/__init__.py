"""Arrays of examples: what `vmap` computes with, a backend whose kernels take all examples at once.

`array.py` has the array, which shows one example's shape and holds all of them. `kernels.py` has the backend: rules that let
a kernel of the examples' own backend run on all at once, and for the other kernels a loop over the examples.
"""
