"""``python -m macspec`` is the command ``macspec``."""

import sys

from .cli import main

sys.exit(main())
