"""The schema that is shipped is that of the messages."""

import json
from pathlib import Path

import service.schema
from service.protocol import CLIENT_MESSAGES, SERVER_MESSAGES
from service.schema import protocol_schema

SHIPPED = Path(service.schema.__file__).with_name("protocol.schema.json")


def test_the_shipped_schema_is_up_to_date() -> None:
    assert json.loads(SHIPPED.read_text(encoding="utf-8")) == protocol_schema(), (
        "python -m service.schema > service/protocol.schema.json"
    )


def test_every_message_is_there_with_its_side_and_its_type() -> None:
    schema = protocol_schema()
    for side, messages in (("client", CLIENT_MESSAGES), ("server", SERVER_MESSAGES)):
        names = [entry["$ref"].rpartition("/")[2] for entry in schema["properties"][side]["oneOf"]]
        assert names == [message.__name__ for message in messages]
        for message in messages:
            fields = schema["$defs"][message.__name__]["properties"]
            assert fields["type"]["const"] == message.model_fields["type"].default
            assert fields.keys() == message.model_fields.keys()
