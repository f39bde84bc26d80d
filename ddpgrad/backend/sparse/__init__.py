"""Sparse arrays and their kernels, over the arrays of the other backends.

held        what all of them have: shape and dtype, the operators of arithmetic
coo         coordinates: places and values, which are two ordinary arrays; sums, products, layouts
compressed  row by row or column by column, perhaps in blocks
kernels, compressed_kernels   what ops compute on them, by name; an op that is not among these is an error that names it
"""

from . import kernels as kernels
