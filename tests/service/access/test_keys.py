"""API keys: made, kept as hashes, read from a file and from a setting, found again."""

from pathlib import Path

import pytest

from service.access.clients import Client
from service.access.keys import KeysError, hash_key, main, read_keys

DIGEST = "0" * 64


def test_a_new_key_opens_what_its_line_is_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "alice", "--max-sessions", "3"]) == 0
    said = capsys.readouterr()
    secret = said.err.split()[-1]
    assert secret not in said.out
    path = tmp_path / "keys"
    path.write_text("# who may\n\n" + said.out + f"bob:{DIGEST} # no limits\n")
    keys = read_keys(f"carol:{hash_key('rse_c').hex()}", str(path))
    assert keys == {
        hash_key(secret): Client("key alice", 3),
        bytes(32): Client("key bob"),
        hash_key("rse_c"): Client("key carol"),
    }


@pytest.mark.parametrize(
    "entry",
    [
        "alice",
        f"alice:{DIGEST[1:]}",
        f"al ice:{DIGEST}",
        f"alice:{DIGEST}:max_sessions=0",
        f"alice:{DIGEST}:max_sessions=1,max_sessions=2",
        f"alice:{DIGEST}:max_dreams=1",
    ],
)
def test_malformed_entries_are_reported_with_their_line(tmp_path: Path, entry: str) -> None:
    path = tmp_path / "keys"
    path.write_text(f"\n{entry}\n")
    with pytest.raises(KeysError, match="line 2"):
        read_keys("", str(path))


def test_what_is_there_twice_or_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeysError, match="alice"):
        read_keys(2 * f"alice:{DIGEST} ", "")
    with pytest.raises(KeysError, match="cannot be read"):
        read_keys("", str(tmp_path / "none"))
    assert main(["new", "two words"]) == 2
    assert capsys.readouterr().out == ""
