from __future__ import annotations

import sys
from pathlib import Path

# Makers beside the tests are imported by name, also by worker processes: `from toy import process`.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "shards")]
