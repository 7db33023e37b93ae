"""``python -m macspec`` is the command ``macspec``."""

import sys

from .cli.supervisor import main

sys.exit(main())
