"""Optimizers over flat memory, and learning rate schedules."""

from . import lr_scheduler as lr_scheduler, swa_utils as swa_utils
from .adafactor import Adafactor as Adafactor
from .adam import Adam as Adam, AdamW as AdamW, Adamax as Adamax, NAdam as NAdam, RAdam as RAdam
from .asgd import ASGD as ASGD
from .lbfgs import LBFGS as LBFGS
from .muon import Muon as Muon
from .optimizer import Optimizer as Optimizer
from .rmsprop import Adadelta as Adadelta, Adagrad as Adagrad, RMSprop as RMSprop
from .rprop import Rprop as Rprop
from .sgd import SGD as SGD
from .sparse_adam import SparseAdam as SparseAdam
