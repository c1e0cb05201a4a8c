"""The benchmarks are not installed: they are imported from the top of the repository."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
