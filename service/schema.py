"""`python -m service.schema` prints the live protocol's JSON Schema (`service.protocol.schema`)."""

from __future__ import annotations

from service.protocol.schema import main

if __name__ == "__main__":
    main()
