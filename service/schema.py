"""`python -m service.schema` prints the live protocol's JSON Schema (`service.protocol.schema`)."""

from service.protocol.schema import main

if __name__ == "__main__":
    main()
