"""Several programs by the ranks of one job, one after the other: `several.py FILE ...`. A launch takes longer than most of them."""

import sys
from pathlib import Path

for path in sys.argv[1:]:
    exec(compile(Path(path).read_text(), path, "exec"), {"__name__": "__main__", "__file__": path})
