"""Learning rate schedules: they set the `lr` of an optimizer's parameter groups."""

from ...core.face import serve

serve(__name__)
