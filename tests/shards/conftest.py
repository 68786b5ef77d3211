from __future__ import annotations

import sys
from pathlib import Path

# The makers beside the tests are imported by name: `from random_complexes import random_complexes`.
sys.path.insert(0, str(Path(__file__).parent))
