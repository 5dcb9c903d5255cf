"""Makes each environment's module importable from its source folder, as if it were installed."""

import sys
from pathlib import Path

for project in sorted(Path(__file__).parent.glob("*/pyproject.toml")):
    sys.path.insert(0, str(project.parent))
