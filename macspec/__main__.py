"""``python -m macspec`` is the command ``macspec``."""

import sys

from .cli.main import main

sys.exit(main())
