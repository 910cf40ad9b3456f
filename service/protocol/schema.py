"""The live protocol as JSON Schema, by side: ``python -m service.protocol.schema`` prints it."""

import json
import sys

from service.protocol.client_messages import CLIENT
from service.protocol.server_messages import SERVER


def main() -> None:
    sides = {"client": CLIENT.json_schema(), "server": SERVER.json_schema(mode="serialization")}
    json.dump(sides, sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
