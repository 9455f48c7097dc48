"""Reading: every byte of the text arrives, in any piece size, and what is changed or left out is said once."""

import gzip
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unembed.corpora.columns import cells
from unembed.corpora.reading import Reading, ReadReport
from unembed.corpora.text import TextReader, find_files
from unembed.errors import CorpusError


def read(data, report=None, piece_bytes=1 << 20, **options) -> str:
    reader = TextReader(data, Reading(**options), piece_bytes=piece_bytes)
    return "".join(piece.text for piece in reader.pieces(report))


NO_SURROGATES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(text=NO_SURROGATES, mark=st.booleans(), piece_bytes=st.integers(4, 9))
def test_property_the_bytes_after_the_mark_come_back_in_any_piece_size(tmp_path_factory, text, mark, piece_bytes):
    path = tmp_path_factory.mktemp("t") / "a.txt"
    path.write_bytes((b"\xef\xbb\xbf" if mark else b"") + text.encode())
    if not mark and text.startswith("\ufeff"):
        text = text[1:] or "x"
        path.write_bytes(text.encode())
    if text.startswith("\ufeff") and not mark:
        return
    report = ReadReport()
    assert read(path, report, piece_bytes) == text
    assert (report.n_characters, report.n_bytes) == (len(text), len(text.encode()))
    assert bool(report.bom_files) == mark


@given(st.lists(st.sampled_from(["\r", "\n", "\r\n", "a", "é"]), min_size=1), st.integers(4, 9))
def test_oracle_crlf_becomes_lf_and_nothing_else_changes(tmp_path_factory, parts, piece_bytes):
    text = "".join(parts)
    path = tmp_path_factory.mktemp("t") / "a.txt"
    path.write_bytes(text.encode())
    assert read(path, piece_bytes=piece_bytes, newlines="lf") == text.replace("\r\n", "\n")
    report = ReadReport()
    assert read(path, report, piece_bytes=piece_bytes) == text
    assert report.n_crlf == text.count("\r\n")


@pytest.mark.parametrize("piece_bytes", [4, 5, 6, 7, 1 << 20])
@pytest.mark.parametrize("packed", [False, True])
def test_invalid_bytes_are_named_by_file_and_offset_or_skipped(tmp_path, piece_bytes, packed):
    content = "\ufeffañb".encode() + b"\xe9" + b"c\r\n" + b"\xff\xfe" + "깰".encode() + b"\xea\xb9"
    path = tmp_path / ("a.txt.gz" if packed else "a.txt")
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(
        CorpusError, match=rf"{path.name}, byte 7 \(0xe9\): not UTF-8 .* train --set invalid_bytes=skip"
    ):
        read(path, piece_bytes=piece_bytes)
    report = ReadReport()
    assert read(path, report, piece_bytes=piece_bytes, invalid_bytes="skip") == "añbc\r\n깰"
    assert report.n_invalid_bytes == 5
    assert report.first_invalid.endswith("byte 7 (0xe9)")


def test_an_unfinished_character_at_the_end_is_invalid(tmp_path):
    (tmp_path / "a").write_bytes("깰".encode()[:2])
    with pytest.raises(CorpusError, match=r"byte 0 \(0xea\): not UTF-8 \(unexpected end of data\)"):
        read(tmp_path / "a")


def test_files_folders_and_globs_in_one_order(tmp_path):
    for name in ["b/2.txt", "b/10.md", "a.txt", ".hidden", "b/.git/x", "c.csv"]:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(name)
    named = [str(path.relative_to(tmp_path)) for path in find_files(tmp_path)]
    assert named == ["a.txt", "b/10.md", "b/2.txt", "c.csv"]
    globbed = find_files([tmp_path / "c.csv", f"{tmp_path}/**/*.txt", tmp_path / "b"])
    assert [path.name for path in globbed] == ["c.csv", "a.txt", "2.txt", "10.md"]
    assert list(TextReader(tmp_path / "b").documents()) == ["b/10.md", "b/2.txt"]


@given(st.lists(st.text(st.sampled_from("ab\n"), min_size=1), min_size=1, max_size=4), st.integers(4, 9))
def test_property_blocks_hold_whole_lines_of_one_document(tmp_path_factory, texts, piece_bytes):
    folder = tmp_path_factory.mktemp("t")
    for i, text in enumerate(texts):
        (folder / f"{i}.txt").write_text(text)
    blocks = list(TextReader(folder, piece_bytes=piece_bytes).blocks())
    assert "".join(blocks) == "".join(texts)
    lines = [line for block in blocks for line in block.splitlines(keepends=True)]
    assert lines == [line for text in texts for line in text.splitlines(keepends=True)]


def test_what_was_met_is_said_once(tmp_path):
    for i in range(5):
        (tmp_path / f"{i}.txt").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    (tmp_path / "t.csv").write_bytes(b"x,y\n")
    (tmp_path / "empty").write_bytes(b"")
    report = ReadReport()
    read(tmp_path, report)
    notes = report.notes(Reading())
    assert [note.replace(f"{tmp_path}/", "") for note in notes] == [
        "t.csv: this looks like a CSV with columns x, y, and was read as plain text, header and all; use --column NAME "
        "to learn from one column alone, each cell a text of its own",
        "0.txt, 1.txt, 2.txt and 2 more: a byte order mark at the start was dropped",
        "0.txt, 1.txt, 2.txt and 2 more: 10 line ends are CRLF and were kept; --newlines lf makes them LF",
        "1 empty document was left out",
    ]
    assert (report.n_files, report.n_documents) == (7, 6)


@pytest.mark.parametrize("piece_bytes", [4, 1 << 20])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", 'Q,"A, or B",label\n1,2,3\n', "a.csv: this looks like a CSV with columns Q, A, or B, label, and"),
        ("a.csv.gz", "a;b\n1,5;2\n", "a.csv.gz: this looks like a CSV with columns a, b, and"),
        ("a.tsv", "a\tb\n", "a.tsv: this looks like a TSV with columns a, b, and"),
        ("a.jsonl", '{"say": "x", "n": 1}\n', "a.jsonl: this looks like a JSONL with columns say, n, and"),
        ("a.csv", ",".join("abcdefghij") + "\n", "with columns a, b, c, d, e, f, g, h, ..., and"),
        ("a.jsonl", "[1]\n", "a.jsonl: this looks like a JSONL, and was read as plain text"),
    ],
)
def test_a_table_read_as_text_is_told_first_with_its_columns(tmp_path, name, content, message, piece_bytes):
    path = tmp_path / name
    content = "\ufeff" + content + "x\r\n"
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    report = ReadReport()
    assert read(path, report, piece_bytes=piece_bytes) == content[1:]
    assert message in report.notes(Reading())[0]
    assert "use --column NAME" in report.notes(Reading())[0]


@pytest.mark.parametrize(("newlines", "cell"), [("keep", "a\r\nb"), ("lf", "a\nb")])
def test_line_ends_of_a_column_are_those_in_its_cells(tmp_path, newlines, cell):
    (tmp_path / "a.csv").write_bytes(b'say\r\n"a\r\nb"\r\nc\r\n"d\r\ne"\r\n')
    report = ReadReport()
    options = Reading(column="say", newlines=newlines)
    assert [piece.text for piece in TextReader(tmp_path, options).pieces(report)][:2] == [cell, "c"]
    assert (report.n_crlf, report.crlf_files) == (2, [tmp_path / "a.csv"])


def test_a_column_of_a_mixed_folder_reads_tables_by_column_and_the_rest_whole(tmp_path):
    (tmp_path / "a.csv").write_text("q,a\nwho?,me\nwhy?,so\n")
    (tmp_path / "b.txt").write_text("plain\n")
    (tmp_path / "c.jsonl").write_text('{"a": "json"}\n')
    report = ReadReport()
    documents = [p.text for p in TextReader(tmp_path, Reading(column="a")).pieces(report)]
    assert documents == ["me", "so", "plain\n", "json"]
    said = report.notes(Reading(column="a"))
    assert said == (f"{tmp_path / 'b.txt'}: no table, so read whole; column 'a' is read from tables",)
    with pytest.raises(
        CorpusError, match=r"b.txt: column 'a' was asked for, but no .csv, .tsv or .jsonl file is there"
    ):
        TextReader(tmp_path / "b.txt", Reading(column="a"))
    with pytest.raises(CorpusError, match=r"a.csv: column 'aa' is not there; .* 'q', 'a'. Did you mean a\?"):
        list(TextReader(tmp_path, Reading(column="aa")).pieces())


@given(
    st.lists(st.text(st.sampled_from("ab\n"), min_size=1), min_size=1, max_size=4),
    st.integers(4, 9),
    st.integers(1, 60),
)
def test_property_blocks_of_the_first_characters_are_those_characters(tmp_path_factory, texts, piece_bytes, n):
    folder = tmp_path_factory.mktemp("t")
    for i, text in enumerate(texts):
        (folder / f"{i}.txt").write_text(text)
    reader = TextReader(folder, piece_bytes=piece_bytes)
    assert "".join(reader.blocks(n)) == "".join(texts)[:n]


def test_memory_of_blocks_does_not_grow_with_the_file(tmp_path):
    peaks = []
    for megabytes in (2, 8):
        path = tmp_path / f"{megabytes}.txt"
        path.write_text("to be or not to be, 깰 año\n" * (megabytes << 15))
        tracemalloc.start()
        for _ in TextReader(path, piece_bytes=1 << 16).blocks():
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0] < 1 << 20


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")), min_size=1))
def test_property_cells_of_a_column_come_back(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("t")
    quoted = ['"' + text.replace('"', '""') + '"' for text in texts]
    (folder / "a.csv").write_bytes("".join(["id,say\r\n", *(f"1,{cell}\r\n" for cell in quoted)]).encode())
    (folder / "b.jsonl").write_bytes("".join(json.dumps({"say": text}) + "\n" for text in texts).encode())
    kept = [text for text in texts if text]
    if kept:
        assert list(TextReader(folder / "a.csv", Reading(column="say"), piece_bytes=7).documents()) == kept
        assert list(TextReader(folder / "b.jsonl", Reading(column="say"), piece_bytes=7).documents()) == kept


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "say\nx\n", "column 'say' was asked for, but this is no .csv"),
        ("a.csv", "q,a\n1,2\n", "column 'say' is not there; the first line names 'q', 'a'"),
        ("a.csv", "Say,a\n1,2\n", r"the first line names 'Say', 'a'\. Did you mean Say\?"),
        ("a.csv", "sya;a\n1;2\n", r"the first line names 'sya', 'a'\. Did you mean sya\?"),
        ("a.jsonl", '{"says": "x"}\n', r"line 1: column 'say' is not there; the line has 'says'\. Did you mean says\?"),
        ("a.csv", "say,say\n1,2\n", "column 'say' is there 2 times"),
        ("a.tsv", "say\ta\n1\n", "line 2: 1 fields, but the first line names 2"),
        ("a.csv", 'say\n"open\n', "line 2: not readable as CSV .*unexpected end of data"),
        ("a.jsonl", '{"say": "x"}\n{"say" "x"}\n', "line 2: not JSON"),
        ("a.jsonl", '{"say": "x"}\n\n{"said": 1}\n', "line 3: column 'say' is not there; the line has 'said'"),
        ("a.jsonl", "[1]\n", "line 1: column 'say' is not there; the line has list"),
        ("a.jsonl", '{"say": 7}\n', "line 1: column 'say' holds int, expected text in quotes"),
        ("a.jsonl", '{"say": "a\\ud800"}\n', r"line 1: column 'say' holds U\+D800, half of a surrogate pair"),
        ("a.csv", "", "column 'say' is not there; the first line names nothing"),
    ],
)
def test_message_for_tables(tmp_path, name, content, message):
    with pytest.raises(CorpusError, match=message):
        list(cells(tmp_path / name, [content], "say"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f: f / "absent.txt", "absent.txt: there is no such file or folder"),
        (lambda f: f"{f}/*.nothing", "no file matches"),
        (lambda f: [], "no data was named"),
        (lambda f: (f / "empty").mkdir() or f / "empty", "the folder holds no file to read"),
        (lambda f: (f / "a").write_bytes(b"") * 0 or f / "a", "no text was found in 1 file"),
        (lambda f: (f / "a").write_bytes("a".encode("utf-16")) * 0 or f / "a", "begins with the mark of UTF-16"),
        (lambda f: (f / "a.gz").write_bytes(b"abc") * 0 or f / "a.gz", "not a whole gzip file"),
        (
            lambda f: (f / "a.gz").write_bytes(gzip.compress(b"abc" * 99)[:20]) * 0 or f / "a.gz",
            "not a whole gzip file",
        ),
    ],
)
def test_message_for_files(tmp_path, make, message):
    with pytest.raises(CorpusError, match=message):
        read(make(tmp_path))


def test_real_texts_come_back_byte_for_byte(data):
    for path in sorted((data / "text").iterdir()):
        content = path.read_bytes()
        assert read(path, piece_bytes=4096).encode() == content.removeprefix(b"\xef\xbb\xbf")


def test_real_column(data):
    questions = list(TextReader(data / "text" / "korean_chat.csv", Reading(column="Q")).documents())
    assert len(questions) == 11_823
    assert questions[0] == "12시 땡!"
