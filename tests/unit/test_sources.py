"""From paths to the ordered list of files."""

from __future__ import annotations

import glob
import os
import shutil
import sysconfig
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

from prep.catalog.errors import InputError
from prep.job import run_job
from prep.readers import SUFFIXES, compression_of, format_of
from prep.sources import globs
from prep.sources.listing import list_sources
from prep.sources.locations import public_location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import MakeConfig


def touch(folder: Path, *names: str) -> None:
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * number)


@pytest.fixture
def names(make_config: MakeConfig) -> Any:
    """Lists the names that patterns give."""

    def give(*patterns: str | Path, **processing: Any) -> list[str]:
        config = make_config(patterns, processing=processing, source={"format": "jsonl"})
        return [file.name for file in list_sources(config)]

    return give


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


def test_a_file_is_described_by_name_size_place_and_format(make_config: MakeConfig, tmp_path: Path) -> None:
    touch(tmp_path, "zero.txt", "a.jsonl.gz")
    (found,) = list_sources(make_config(tmp_path / "a.jsonl.gz"))
    assert (found.name, found.size, found.location) == ("a.jsonl.gz", 1, str(tmp_path / "a.jsonl.gz"))
    assert (found.format, found.is_local) == ("jsonl", True)


def test_matches_of_a_glob_are_sorted_bytewise_and_patterns_keep_their_order(
    names: Any, tmp_path: Path
) -> None:
    touch(tmp_path, "b.jsonl", "a.jsonl", "B.jsonl", "a10.jsonl", "a9.jsonl", "é.jsonl", "z.jsonl")
    assert names(tmp_path / "z.jsonl", tmp_path / "[aBbé]*.jsonl") == [
        "z.jsonl",
        "B.jsonl",
        "a.jsonl",
        "a10.jsonl",
        "a9.jsonl",
        "b.jsonl",
        "é.jsonl",
    ]


def test_a_file_that_several_patterns_name_is_read_once_where_it_comes_first(
    names: Any, tmp_path: Path
) -> None:
    touch(tmp_path, "a.jsonl", "b.jsonl")
    assert names(tmp_path / "b.jsonl", tmp_path / "*.jsonl", tmp_path / "a.jsonl") == ["b.jsonl", "a.jsonl"]


def test_a_file_that_is_spelled_in_two_ways_is_read_once(
    names: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, "d/a.jsonl")
    monkeypatch.chdir(tmp_path)
    for spelling in (
        "./d/a.jsonl",
        "d//a.jsonl",
        tmp_path / "d/a.jsonl",
        f"file://{tmp_path}/d/a.jsonl",
    ):
        assert len(names("d/a.jsonl", spelling)) == 1


def test_names_are_relative_to_the_common_root_wherever_that_lies(names: Any, tmp_path: Path) -> None:
    touch(tmp_path, "x/one/a.jsonl", "x/two/deep/b.jsonl")
    given = names(tmp_path / "x/*/a.jsonl", tmp_path / "x/**/b.jsonl")
    assert given == ["one/a.jsonl", "two/deep/b.jsonl"]
    shutil.move(tmp_path / "x", tmp_path / "elsewhere")
    assert names(tmp_path / "elsewhere/*/a.jsonl", tmp_path / "elsewhere/**/b.jsonl") == given
    assert names(tmp_path / "elsewhere/**/b.jsonl") == ["b.jsonl"]


def test_folders_of_like_names_have_no_common_root_in_the_middle_of_a_name(
    names: Any, tmp_path: Path
) -> None:
    touch(tmp_path, "data-a/x.jsonl", "data-b/x.jsonl")
    assert names(tmp_path / "data-*/x.jsonl") == ["data-a/x.jsonl", "data-b/x.jsonl"]


def test_a_relative_path_is_relative_to_the_current_folder(
    names: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, "sub/a.jsonl", "sub/b.jsonl")
    monkeypatch.chdir(tmp_path)
    assert names("sub/*.jsonl") == ["a.jsonl", "b.jsonl"]


def test_a_file_url_is_a_local_path(make_config: MakeConfig, tmp_path: Path) -> None:
    touch(tmp_path, "a.jsonl")
    (found,) = list_sources(make_config(f"file://{tmp_path}/a.jsonl"))
    assert (found.location, found.is_local) == (str(tmp_path / "a.jsonl"), True)


def test_folders_that_a_glob_matches_are_passed_over(names: Any, tmp_path: Path) -> None:
    touch(tmp_path, "a.jsonl", "folder.jsonl/inside.jsonl")
    assert names(tmp_path / "*.jsonl") == ["a.jsonl"]


@pytest.mark.parametrize("kind", ["up", "self", "outside"])
def test_a_loop_of_links_gives_each_file_once(names: Any, tmp_path: Path, kind: str) -> None:
    touch(tmp_path, "in/sub/a.jsonl", "in/b.jsonl")
    target = {"up": "..", "self": ".", "outside": str(tmp_path)}[kind]
    (tmp_path / "in/sub/loop").symlink_to(target)
    assert names(tmp_path / "in/**/*.jsonl") == ["b.jsonl", "sub/a.jsonl"]


def test_a_folder_that_two_links_lead_to_is_read_twice(names: Any, tmp_path: Path) -> None:
    touch(tmp_path, "real/a.jsonl")
    for name in ("x", "y"):
        (tmp_path / name).symlink_to("real")
    assert names(tmp_path / "**/*.jsonl") == ["real/a.jsonl", "x/a.jsonl", "y/a.jsonl"]


@pytest.mark.parametrize("target", ["nowhere.jsonl", "link.jsonl"])
def test_a_link_that_leads_to_no_file_is_an_error(names: Any, tmp_path: Path, target: str) -> None:
    touch(tmp_path, "a.jsonl")
    (tmp_path / "link.jsonl").symlink_to(target)
    with pytest.raises(InputError, match=r"link\.jsonl: source\.paths: a link that leads to no file"):
        names(tmp_path / "*.jsonl")


@pytest.mark.parametrize("pattern", ["**/*.jsonl", "*/*.jsonl", "*/sub/*.jsonl", "b/*/*.jsonl"])
def test_a_folder_that_cannot_be_listed_is_an_error(
    names: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    touch(tmp_path, "a/sub/a.jsonl", "b/sub/b.jsonl", "a/c.jsonl")
    inside = str(tmp_path / "b/")

    def guard(function: Any) -> Any:
        def refuse(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            if f"{path}/".startswith(f"{inside}/") and (
                function is scandir or len(str(path)) > len(inside) + 1
            ):
                raise PermissionError(13, "Permission denied", str(path))
            return function(path, *arguments, **options)

        return refuse

    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", guard(scandir))
    monkeypatch.setattr(Path, "stat", guard(Path.stat))
    with pytest.raises(InputError, match="cannot be listed: PermissionError") as raised:
        names(tmp_path / pattern)
    assert inside in str(raised.value)


@pytest.mark.parametrize(
    "pattern",
    [
        "*", "**", "**/*", "*/*", "**/b/*", "*/b/**", "**/**/c?.txt", "a/**/*.txt", "[!a]/*", ".h/*", ".*",
        "a/./*.txt", "a//b/*.txt", "a/../a/*.txt", "*.txt", "**/.h*", "a/b/c1.txt", "none/*", "a/*/c[12].txt",
        "**/",
    ],
)  # fmt: skip
def test_globs_match_what_those_of_the_standard_library_match(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    tree = ("a/b/c1.txt", "a/b/c2.txt", "a/c3.txt", "b/b/d.txt", ".h/e.txt", "a/.h.txt", "f.txt", "é/g.txt")
    for name in tree:
        touch(tmp_path, name)
    monkeypatch.chdir(tmp_path)
    for given in (pattern, f"{tmp_path}/{pattern}"):
        found = {name for name in globs.matches(given) if Path(name).is_file()}
        expected = {name for name in glob.glob(given, recursive=True) if Path(name).is_file()}  # noqa: PTH207
        assert {os.path.normpath(name) for name in found} == {os.path.normpath(name) for name in expected}


def test_a_file_whose_name_holds_glob_characters_can_be_named(names: Any, tmp_path: Path) -> None:
    touch(tmp_path, "a[1].jsonl", "b?.jsonl")
    assert names(tmp_path / "a[1].jsonl") == ["a[1].jsonl"]
    assert names(tmp_path / "b?.jsonl") == ["b?.jsonl"]


@pytest.mark.parametrize("pattern", ["none.jsonl", "*.ndjson", "none/*.jsonl", "**/none.jsonl"])
def test_a_pattern_without_a_match_is_an_error_though_others_match(
    names: Any, tmp_path: Path, pattern: str
) -> None:
    """Case Q66."""
    touch(tmp_path, "a.jsonl")
    with pytest.raises(InputError, match="no file matches") as raised:
        names(tmp_path / "a.jsonl", tmp_path / pattern)
    assert pattern in str(raised.value)


def test_a_folder_is_an_error_that_shows_a_glob(names: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this is a folder") as raised:
        names(tmp_path)
    assert str(tmp_path / "*") in str(raised.value)


@pytest.mark.parametrize("name", ["a.csv", "a", "a.jsonl.bz2", "a.parquet.gz", "a.py", ".jsonl.xz", "a.zst"])
def test_a_suffix_that_tells_no_format_is_an_error_that_lists_the_known_ones(
    make_config: MakeConfig, tmp_path: Path, name: str
) -> None:
    """Case Q66."""
    touch(tmp_path, name)
    with pytest.raises(InputError) as raised:
        list_sources(make_config(tmp_path / name))
    message = str(raised.value)
    assert name in message
    assert all(suffix in message for suffix in SUFFIXES)
    assert "source.format" in message


def test_a_named_format_goes_before_the_suffix(make_config: MakeConfig, tmp_path: Path) -> None:
    touch(tmp_path, "a.py", "b.jsonl")
    found = list_sources(make_config([tmp_path / "a.py", tmp_path / "b.jsonl"], source={"format": "txt"}))
    assert [file.format for file in found] == ["txt", "txt"]


@pytest.mark.parametrize(
    ("name", "kind", "compressed"),
    [
        ("a.jsonl", "jsonl", None),
        ("A.JSONL", "jsonl", None),
        ("a.ndjson.zst", "jsonl", ".zst"),
        ("a.json.gz", "json", ".gz"),
        ("a.parquet", "parquet", None),
        ("a.feather", "arrow", None),
        ("a.arrow", "arrow", None),
        ("x.y/a.txt.GZ", "txt", ".gz"),
        ("x.jsonl/a", None, None),
        ("a.arrow.zst", None, ".zst"),
    ],
)
def test_suffixes_tell_format_and_compression(name: str, kind: str | None, compressed: str | None) -> None:
    assert format_of(name) == kind
    assert compression_of(name) == compressed


def test_the_placeholder_stands_for_the_standard_library(make_config: MakeConfig) -> None:
    config = make_config(["{stdlib}/json/*.py"], source={"format": "txt"})
    found = {file.name: file.location for file in list_sources(config)}
    assert Path(found["decoder.py"]) == Path(sysconfig.get_path("stdlib")) / "json" / "decoder.py"
    assert "__init__.py" in found


def test_files_in_memory_are_listed_with_their_sizes(
    make_config: MakeConfig, memory: fsspec.AbstractFileSystem
) -> None:
    for name, data in (
        ("/corpus/b.jsonl", b"22"),
        ("/corpus/a.jsonl", b"1"),
        ("/corpus/sub/c.jsonl", b"333"),
    ):
        memory.pipe_file(name, data)
    found = list_sources(make_config(["memory://corpus/*.jsonl"]))
    assert [(file.name, file.size, file.is_local) for file in found] == [
        ("a.jsonl", 1, False),
        ("b.jsonl", 2, False),
    ]
    (one,) = list_sources(make_config(["memory://corpus/sub/c.jsonl"]))
    with fsspec.open(one.location, "rb") as stream:
        assert stream.read() == b"333"


def test_files_in_an_archive_are_read_by_a_chained_url(make_config: MakeConfig, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("in/x.jsonl", "in/y.jsonl", "in/z.txt"):
            archive.writestr(name, f'{{"text": "the quick {name}"}}\n')
    config = make_config(f"zip://in/*.jsonl::{tmp_path}/a.zip")
    found = list_sources(config)
    assert [(file.name, file.size, file.format) for file in found] == [
        ("x.jsonl", 33, "jsonl"),
        ("y.jsonl", 33, "jsonl"),
    ]
    assert run_job(config).documents == 2


def test_equal_names_in_two_archives_stay_apart(make_config: MakeConfig, tmp_path: Path) -> None:
    urls = []
    for name in ("a.zip", "b.zip"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("x.jsonl.gz", "")
        urls.append(f"zip://x.jsonl.gz::file://{tmp_path}/{name}")
    found = list_sources(make_config(urls))
    assert [file.name for file in found] == ["a.zip/x.jsonl.gz", "b.zip/x.jsonl.gz"]


def test_a_size_that_a_listing_lacks_is_asked_for(
    make_config: MakeConfig, memory: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe_file("/corpus/a.jsonl", b"22")
    monkeypatch.setattr(
        type(memory), "glob", lambda *_, **__: {"/corpus/a.jsonl": {"type": "file", "size": None}}
    )
    (found,) = list_sources(make_config("memory://corpus/*.jsonl"))
    assert found.size == 2


@pytest.mark.parametrize(
    "pattern", ["memory://none/*.jsonl", "memory://none/a.jsonl", "nosuchscheme://x/a.jsonl"]
)
def test_a_url_that_leads_nowhere_is_an_input_error(make_config: MakeConfig, pattern: str) -> None:
    with pytest.raises(InputError) as raised:
        list_sources(make_config([pattern]))
    assert pattern in str(raised.value)


def test_shuffled_files_depend_on_the_seed_alone(names: Any, tmp_path: Path) -> None:
    touch(tmp_path, *(f"{number:02}.jsonl" for number in range(20)))
    plain = names(tmp_path / "*.jsonl")
    orders = [names(tmp_path / "*.jsonl", shuffle={"files": True, "seed": seed}) for seed in (0, 0, 1)]
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in (plain, orders[0], orders[2])}) == 3
    assert all(sorted(order) == plain for order in orders)


def test_the_shuffled_order_is_pinned(names: Any, tmp_path: Path) -> None:
    touch(tmp_path, *(f"{number}.jsonl" for number in range(8)))
    order = names(tmp_path / "*.jsonl", shuffle={"files": True, "seed": 7})
    assert order == [f"{number}.jsonl" for number in (3, 5, 0, 2, 1, 4, 6, 7)]


def test_a_name_that_is_not_utf8_is_refused(make_config: MakeConfig, tmp_path: Path) -> None:
    os.close(os.open(os.fsencode(tmp_path) + b"/\xff.jsonl", os.O_CREAT))
    with pytest.raises(InputError, match=r"\.jsonl"):
        list_sources(make_config(tmp_path / "*.jsonl"))


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("/data/a.jsonl", "/data/a.jsonl"),
        ("s3://bucket/a?b.jsonl", "s3://bucket/a?b.jsonl"),
        ("https://user:secret@host:8080/a.jsonl", "https://host:8080/a.jsonl"),
        ("https://host/a.jsonl?X-Signature=secret#part", "https://host/a.jsonl"),
        ("ftp://user:secret@host/a@b.jsonl", "ftp://host/a@b.jsonl"),
        ("memory://corpus/a.jsonl", "memory://corpus/a.jsonl"),
        ("zip://a.jsonl::https://user:secret@host/a.zip?sig=secret", "zip://a.jsonl::https://host/a.zip"),
    ],
)
def test_what_may_be_secret_in_a_url_is_not_shown(location: str, shown: str) -> None:
    assert public_location(location) == shown


def test_no_message_holds_what_is_secret_in_a_url(make_config: MakeConfig) -> None:
    with pytest.raises(InputError) as raised:
        list_sources(make_config(["nosuchscheme://user:secret@host/a.jsonl"]))
    assert "secret" not in str(raised.value)
    assert "nosuchscheme://host/a.jsonl" in str(raised.value)


def test_a_server_that_does_not_answer_is_told_from_a_missing_file(make_config: MakeConfig) -> None:
    """Case Q60."""
    pytest.importorskip("aiohttp")
    with pytest.raises(InputError, match="no file matches: ClientConnectorError"):
        list_sources(make_config("http://127.0.0.1:1/a.jsonl"))
    with pytest.raises(InputError, match=r"no file matches: ClientConnectorError$") as raised:
        list_sources(make_config("http://user:secret@127.0.0.1:1/a.jsonl?signature=secret"))
    assert "secret" not in str(raised.value)
