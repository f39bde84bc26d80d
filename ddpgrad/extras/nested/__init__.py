"""`torch.nested`: tensors of different lengths as one tensor, to which functions are applied one by one."""

from .construct import as_nested_tensor as as_nested_tensor
from .construct import masked_select as masked_select
from .construct import narrow as narrow
from .construct import nested_tensor as nested_tensor
from .construct import nested_tensor_from_jagged as nested_tensor_from_jagged
from .construct import to_padded_tensor as to_padded_tensor
from .tensor import NestedTensor as NestedTensor
