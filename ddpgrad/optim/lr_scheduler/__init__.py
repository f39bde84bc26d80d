"""Learning rate schedules: they set the `lr` of an optimizer's groups, step by step."""

from ...core.face import serve

serve(__name__)
