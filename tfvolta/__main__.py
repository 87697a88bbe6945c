"""``python -m tfvolta`` is the command ``tfvolta``."""

import sys

from tfvolta.cli.main import main

sys.exit(main())
