"""``python -m augury`` is ``augury``."""

import sys

from augury.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
