"""Python runs this at its start where this folder is in PYTHONPATH: CuPy is then on the stand-in."""

import fakecuda

fakecuda.activate()
