"""What fails is told once, nothing is overwritten, and the conversation goes on in memory."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from soundstore import check_sound

from macspec.errors import BadOptionError
from macspec.store import COMPLETE, CUT_OFF, Store
from macspec.store import database as database_module
from macspec.store.database import APPLICATION_ID, STEPS

NOBODY = 65534


def filled(path: Path) -> bytes:
    """A store with a conversation about pears, closed; its bytes."""
    store = Store(path)
    chat = store.new_chat(system="Be brief.")
    reply = store.reply(chat.id, store.add(chat.id, None, "Pears?").id)
    reply.append("Sweet.")
    reply.finish()
    store.close()
    return path.read_bytes()


def goes_on(store: Store) -> None:
    """A conversation can begin, stream, be searched, and be deleted and brought back."""
    chat = store.new_chat()
    reply = store.reply(chat.id, store.add(chat.id, None, "Quince?").id)
    reply.append("Sour.")
    reply.save()
    assert store.message(reply.id).text == "Sour."
    assert reply.finish().state == COMPLETE
    assert [hit.chat.id for hit in store.search("quince")] == [chat.id]
    store.delete(chat.id)
    assert [each.id for each in store.undo()] == [chat.id]


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")


def newer(path: Path) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {len(STEPS) + 1}")


def no_database(path: Path) -> None:
    path.write_bytes(b"notes of mine, and no database\n" * 500)


def damaged_header(path: Path) -> None:
    data = bytearray(filled(path))
    data[100:400] = os.urandom(300)
    path.write_bytes(data)


def cut_short(path: Path) -> None:
    path.write_bytes(filled(path)[:6000])


def without_tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(STEPS)}")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (foreign, "belongs to another program"),
        (newer, "written by a newer macspec; update macspec"),
        (no_database, "it is damaged; run macspec history repair"),
        (damaged_header, "it is damaged"),
        (cut_short, "it is damaged"),
        (without_tables, "it is damaged"),
    ],
)
def test_a_file_that_cannot_be_used_is_left_alone(
    path: Path, make: Callable[[Path], None], says: str
) -> None:
    path.parent.mkdir(parents=True)
    make(path)
    before = path.read_bytes()
    store = Store(path)
    goes_on(store)
    assert store.trouble is not None
    assert says in store.trouble
    assert str(path) in store.trouble
    assert "memory" in store.trouble
    assert "\n" not in store.trouble
    store.close()
    assert path.read_bytes() == before
    assert not list(path.parent.glob("*.writer"))


def test_a_folder_in_the_way(path: Path) -> None:
    path.mkdir(parents=True)
    store = Store(path)
    goes_on(store)
    assert "cannot be written" in (store.trouble or "")
    assert list(path.iterdir()) == []


def test_a_file_where_the_folder_should_be(path: Path) -> None:
    path.parent.parent.mkdir(parents=True)
    path.parent.write_text("mine")
    store = Store(path)
    goes_on(store)
    assert store.trouble is not None
    assert path.parent.read_text() == "mine"


@pytest.fixture
def others_folder() -> Iterator[Path]:
    """A folder outside of pytest's, which only its owner could enter."""
    folder = Path(tempfile.mkdtemp(prefix="macspec-test-"))
    yield folder
    for each in [folder, *folder.rglob("*")]:
        each.chmod(0o700)
    shutil.rmtree(folder)


@contextmanager
def forbidden(folder: Path, mode: int) -> Iterator[None]:
    """Whoever this is may read all in a folder, and write nothing; ``mode`` is the folder's."""
    for each in folder.rglob("*"):
        each.chmod(mode if each.is_dir() else 0o444)
    folder.chmod(mode)
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        for each in [folder, *folder.rglob("*")]:
            each.chmod(0o700)


def at_it(path: Path) -> subprocess.Popen[bytes]:
    """Another process that has the store open: there is a log beside the file, then."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from macspec.store import Store\n"
        "store = Store(Path(sys.argv[1]))\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"open\n"
    return process


@pytest.mark.parametrize("left_open", [False, True])
def test_what_cannot_be_written_can_be_read(others_folder: Path, left_open: bool) -> None:
    path = others_folder / "data" / "chats" / "chats.db"
    before = filled(path)
    other = at_it(path) if left_open else None
    with forbidden(others_folder, 0o555):
        store = Store(path)
        assert "it cannot be written; check its permissions" in (store.trouble or "")
        assert [chat.title for chat in store.chats()] == ["Pears?"]
        assert [turn.text for turn in store.thread(1)] == ["Pears?", "Sweet."]
        assert [hit.chat.id for hit in store.search("sweet")] == [1]
        goes_on(store)
        reply = store.reply(1, store.add(1, store.chat(1).leaf, "Why?").id)
        reply.append("Sugar.")
        reply.finish()
        assert [turn.text for turn in store.thread(1)] == ["Pears?", "Sweet.", "Why?", "Sugar."]
        store.close()
    if other is not None:
        assert (path.parent / "chats.db-wal").exists()
        other.communicate(timeout=60)
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made(others_folder: Path) -> None:
    with forbidden(others_folder, 0o555):
        store = Store(others_folder / "data" / "chats" / "chats.db")
        assert "it cannot be written" in (store.trouble or "")
        goes_on(store)
    assert list(others_folder.iterdir()) == []


def fill_disk(store: Store) -> None:
    """SQLite reports a full disk from now on: its own limit of pages ends in the same error."""
    connection = store._database._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")


def test_a_disk_that_fills_up_in_a_reply(path: Path) -> None:
    store = Store(path)
    chat = store.new_chat(system="Be brief.")
    reply = store.reply(chat.id, store.add(chat.id, None, "Pears?").id)
    reply.append("Sweet ")
    reply.save()
    fill_disk(store)
    reply.append("and juicy. " * 5_000)
    reply.save()
    assert "the disk is full; free some space" in (store.trouble or "")
    reply.append("All of them.")
    message = reply.finish()
    whole = "Sweet " + "and juicy. " * 5_000 + "All of them."
    assert (message.id, message.text, message.state) == (reply.id, whole, COMPLETE)
    assert [turn.text for turn in store.thread(chat.id)] == ["Pears?", whole]
    assert store.chat(chat.id).system == "Be brief."
    goes_on(store)
    store.close()

    check_sound(path)
    again = Store(path)
    assert again.trouble is None
    _, kept = again.thread(chat.id)
    assert (kept.text, kept.state) == ("Sweet ", CUT_OFF)
    again.close()


def test_a_disk_that_is_full_already(path: Path) -> None:
    filled(path)
    store = Store(path)
    fill_disk(store)
    asked = store.add(1, store.chat(1).leaf, "Why? " * 5_000)
    assert "the disk is full" in (store.trouble or "")
    assert [turn.text for turn in store.thread(1)][:2] == ["Pears?", "Sweet."]
    assert store.thread(1)[-1] == asked
    assert len(store.messages(1)) == 3
    goes_on(store)


LIMITED = """
import resource, signal, sys
from pathlib import Path
from macspec.store import Store

store = Store(Path(sys.argv[1]))
chat = store.new_chat()
reply = store.reply(chat.id, store.add(chat.id, None, "Pears?").id)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
for _ in range(100):
    reply.append("Sweet. " * 1000)
    reply.save()
message = reply.finish()
assert message.text == "Sweet. " * 100_000
print(store.trouble)
"""


def test_a_limit_of_file_sizes(path: Path) -> None:
    assert resource.RLIMIT_FSIZE is not None
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert "kept in memory" in done.stdout
    check_sound(path)


def held_by_another(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(how)
    return connection


def test_a_file_that_another_program_holds(path: Path) -> None:
    filled(path)
    other = held_by_another(path, "BEGIN IMMEDIATE")
    store = Store(path, patience=0.05)
    assert "another program has locked it; quit that program" in (store.trouble or "")
    assert [chat.title for chat in store.chats()] == ["Pears?"]
    goes_on(store)
    other.execute("ROLLBACK")
    other.close()


def test_a_file_that_another_program_holds_for_itself(path: Path) -> None:
    filled(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA journal_mode = DELETE")
    other.execute("BEGIN EXCLUSIVE")
    store = Store(path, patience=0.05)
    assert "another program has locked it" in (store.trouble or "")
    goes_on(store)
    other.close()


def test_a_file_that_is_taken_in_mid_reply(path: Path) -> None:
    store = Store(path, patience=0.05)
    chat = store.new_chat()
    reply = store.reply(chat.id, store.add(chat.id, None, "Pears?").id)
    other = held_by_another(path, "BEGIN IMMEDIATE")
    reply.append("Sweet.")
    assert reply.finish().text == "Sweet."
    assert "another program has locked it" in (store.trouble or "")
    assert [turn.text for turn in store.thread(chat.id)] == ["Pears?", "Sweet."]
    other.close()


def test_a_short_lock_is_waited_for(path: Path) -> None:
    filled(path)
    program = (
        "import sqlite3, sys, time\n"
        "held = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "held.execute('BEGIN IMMEDIATE')\n"
        "print('held', flush=True)\n"
        "time.sleep(0.3)\n"
        "held.execute('COMMIT')\n"
    )
    other = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
    assert other.stdout is not None
    assert other.stdout.readline() == b"held\n"
    store = Store(path, patience=60)
    goes_on(store)
    assert store.trouble is None
    store.close()
    assert other.wait(60) == 0
    other.stdout.close()


def test_damage_in_mid_conversation_loses_nothing_of_it(path: Path) -> None:
    store = Store(path)
    chat = store.new_chat(system="Be brief.")
    first = store.reply(chat.id, store.add(chat.id, None, "Pears?").id)
    first.append("Sweet. " * 10_000)
    first.finish()
    store._database._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)
    store._database._connection.execute("PRAGMA cache_size = 0")

    asked = store.add(chat.id, first.id, "Why?")
    assert "it is damaged" in (store.trouble or "")
    reply = store.reply(chat.id, asked.id)
    reply.append("Sugar.")
    reply.finish()
    assert [turn.text for turn in store.thread(chat.id)] == [
        "Pears?",
        "Sweet. " * 10_000,
        "Why?",
        "Sugar.",
    ]
    assert store.chat(chat.id).system == "Be brief."
    goes_on(store)
    store.close()
    assert path.read_bytes() == data


def test_a_file_too_large_for_memory_is_not_copied(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(path)
    store = Store(path)
    turns = store.thread(1)
    monkeypatch.setattr(database_module, "COPY_LIMIT", 1)
    fill_disk(store)
    store.add(1, turns[-1].id, "Why? " * 5_000)
    assert [turn.text for turn in store.thread(1)][:2] == ["Pears?", "Sweet."]
    assert store.trouble is not None


def test_a_store_in_memory_is_no_trouble() -> None:
    store = Store(None)
    goes_on(store)
    assert store.trouble is None


def test_a_mistake_is_no_trouble(path: Path) -> None:
    store = Store(path)
    with pytest.raises(BadOptionError):
        store.chat(1)
    with pytest.raises(sqlite3.IntegrityError):
        store._database.write(
            lambda connection: connection.execute("INSERT INTO chats(id) VALUES (1)")
        )
    assert store.trouble is None
    store.close()
