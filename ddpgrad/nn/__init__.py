"""Neural networks: modules, and the functions, losses and initial values that they are made of."""

from ..core.face import serve

serve(__name__)
