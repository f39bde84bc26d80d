"""`torch.sparse`: tensors that hold the elements at some places, all others being 0: in coordinates (COO), or matrices row by
row (CSR, BSR) or column by column (CSC, BSC).

The raw array of such a tensor (`backend/sparse`) consists of ordinary ones; ops compute on it where they are defined
for it, and are errors that name the op elsewhere.

autograd    elements of places and back, with gradients: what all else here is made of
construct   new sparse tensors in coordinates
compressed  new ones of the other layouts, and conversions to these
methods     what a Tensor has for its layout, such as `coalesce`, `indices`, `to_dense`
functions   products, sums and softmax
"""

from ..compat import absent as _absent
from . import construct as _construct
from . import functions as _functions

ByteTensor, DoubleTensor, FloatTensor = _construct.ByteTensor, _construct.DoubleTensor, _construct.FloatTensor
HalfTensor, IntTensor, LongTensor = _construct.HalfTensor, _construct.IntTensor, _construct.LongTensor
BFloat16Tensor, CharTensor, ShortTensor = (
    _construct.BFloat16Tensor,
    _construct.CharTensor,
    _construct.ShortTensor,
)
check_sparse_tensor_invariants = _construct.check_sparse_tensor_invariants
spdiags = _construct.spdiags
addmm = _functions.addmm
log_softmax = _functions.log_softmax
mm = _functions.mm
sampled_addmm = _functions.sampled_addmm
softmax = _functions.softmax
sum = _functions.sum
(
    SparseSemiStructuredTensor,
    SparseSemiStructuredTensorCUSPARSELT,
    SparseSemiStructuredTensorCUTLASS,
    to_sparse_semi_structured,
) = _absent.stand_ins("sparse", _absent.SEMI_STRUCTURED).values()
