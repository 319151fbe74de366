"""Makes the modules beside the sweep importable by it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
