"""The planner's tests share two modules beside this file, under any import mode."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
