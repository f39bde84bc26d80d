"""Sparse arrays in coordinate form, and their kernels, over the arrays of the other backends.

coo       the array: places and values, which are two ordinary arrays; sums, products, layouts
kernels   what ops compute on such arrays, by name; an op that is not among them is an error that names it
"""

from . import kernels as kernels
