"""The live protocol as JSON Schema: ``python -m service.protocol.schema`` prints it."""

import json
import sys
from typing import Any

from pydantic.json_schema import models_json_schema

from service.protocol.client_messages import CLIENT_MESSAGES
from service.protocol.server_messages import SERVER_MESSAGES


def protocol_schema() -> dict[str, Any]:
    """All messages under ``$defs``; ``properties`` lists those of each side."""
    _, schema = models_json_schema(
        [(message, "validation") for message in CLIENT_MESSAGES]
        + [(message, "serialization") for message in SERVER_MESSAGES],
        title="Live transcription protocol",
        description="See PROTOCOL.md. Every text message is one of these, told apart by `type`.",
    )
    sides = {"client": (CLIENT_MESSAGES, ["type"]), "server": (SERVER_MESSAGES, ["seq", "type"])}
    schema["properties"] = {}
    for side, (messages, always) in sides.items():
        references = [{"$ref": f"#/$defs/{message.__name__}"} for message in messages]
        schema["properties"][side] = {"oneOf": references}
        for message in messages:
            definition = schema["$defs"][message.__name__]
            definition["required"] = [*always, *definition.get("required", [])]
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema


def main() -> None:
    json.dump(protocol_schema(), sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
