"""API keys: `python -m service.keys new NAME` makes one (`service.access.keys`)."""

import sys

from service.access.keys import main

if __name__ == "__main__":
    sys.exit(main())
