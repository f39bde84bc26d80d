"""The launcher: `ddprun` starts and watches ranks; `setup` deals out the work; `Checkpointer` commits its state."""

from ddpgrad.core.face import serve

serve(__name__)
