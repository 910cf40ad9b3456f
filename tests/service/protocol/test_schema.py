"""The JSON Schema of the protocol."""

import json

import pytest

from service.protocol.client_messages import CLIENT_MESSAGES
from service.protocol.schema import main, protocol_schema
from service.protocol.server_messages import SERVER_MESSAGES


def test_it_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    assert json.loads(capsys.readouterr().out) == protocol_schema()


def test_every_message_is_there_with_its_side_and_its_type() -> None:
    schema = protocol_schema()
    for side, messages in (("client", CLIENT_MESSAGES), ("server", SERVER_MESSAGES)):
        names = [entry["$ref"].rpartition("/")[2] for entry in schema["properties"][side]["oneOf"]]
        assert names == [message.__name__ for message in messages]
        for message in messages:
            fields = schema["$defs"][message.__name__]["properties"]
            assert fields["type"]["const"] == message.model_fields["type"].default
            assert fields.keys() == message.model_fields.keys()
