"""`torch.linalg`: linear algebra on batches of matrices."""

from .core import errors as _errors
from .ops.linalg import decompositions as _decompositions
from .ops.linalg import householder as _householder
from .ops.linalg import indefinite as _indefinite
from .ops.linalg import matrix as _matrix
from .ops.linalg import matrix_exp as _matrix_exp
from .ops.linalg import norms as _norms
from .ops.linalg import products as _products
from .ops.linalg import systems as _systems

LinAlgError = _errors.LinAlgError
cholesky = _decompositions.linalg_cholesky
cholesky_ex = _decompositions.linalg_cholesky_ex
cond = _norms.linalg_cond
cross = _products.linalg_cross
det = _systems.linalg_det
diagonal = _systems.linalg_diagonal
eig = _decompositions.linalg_eig
eigh = _decompositions.linalg_eigh
eigvals = _decompositions.linalg_eigvals
eigvalsh = _decompositions.linalg_eigvalsh
householder_product = _householder.linalg_householder_product
inv = _systems.linalg_inv
inv_ex = _systems.linalg_inv_ex
ldl_factor = _indefinite.linalg_ldl_factor
ldl_factor_ex = _indefinite.linalg_ldl_factor_ex
ldl_solve = _indefinite.linalg_ldl_solve
lstsq = _norms.linalg_lstsq
lu = _decompositions.linalg_lu
lu_factor = _decompositions.linalg_lu_factor
lu_factor_ex = _decompositions.linalg_lu_factor_ex
lu_solve = _decompositions.linalg_lu_solve
matmul = _matrix.matmul
matrix_exp = _matrix_exp.matrix_exp
matrix_norm = _norms.linalg_matrix_norm
matrix_power = _systems.linalg_matrix_power
matrix_rank = _norms.linalg_matrix_rank
multi_dot = _products.linalg_multi_dot
norm = _norms.linalg_norm
pinv = _norms.linalg_pinv
qr = _decompositions.linalg_qr
slogdet = _systems.linalg_slogdet
solve = _systems.linalg_solve
solve_ex = _systems.linalg_solve_ex
solve_triangular = _systems.linalg_solve_triangular
svd = _decompositions.linalg_svd
svdvals = _decompositions.linalg_svdvals
tensorinv = _systems.linalg_tensorinv
tensorsolve = _systems.linalg_tensorsolve
vander = _systems.linalg_vander
vecdot = _products.linalg_vecdot
vector_norm = _norms.linalg_vector_norm
