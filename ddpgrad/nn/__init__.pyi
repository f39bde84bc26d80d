"""Neural networks: modules, and the functions, losses and initial values that they are made of."""

from . import (
    attention as attention, common_types as common_types, functional as functional, grad as grad, init as init,
    modules as modules, parallel as parallel, parameter as parameter, utils as utils,
)
from .parallel.data_parallel import DataParallel as DataParallel
from .parameter import (
    Buffer as Buffer, Parameter as Parameter, UninitializedBuffer as UninitializedBuffer,
    UninitializedParameter as UninitializedParameter,
)
from .modules import *
