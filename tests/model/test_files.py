from pathlib import Path

from model.files import write_whole


def test_a_name_may_be_as_long_as_names_can_be(tmp_path: Path) -> None:
    file = tmp_path / f"{'n' * 251}.mid"
    for content in (b"one", b"two"):
        write_whole(file, content)
        assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]
