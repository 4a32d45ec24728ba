"""Tokens: who is let in, who is not, and that no secret is kept; the brake on guessing; `cbe token`."""

from __future__ import annotations

import json
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from cbe.errors import InputError, RunError
from cbe.service.auth.audit import Audit
from cbe.service.auth.tokens import CACHE_S, Holder, Role, Tokens
from cbe.store.folder import Store
from tests.conftest import Cbe, small_files

DAY_S = 24 * 3600.0
TEXT = re.compile(r"cbe_[0-9a-f]{8}_[\w-]{43}")


class Clock:
    """A time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def path_of(store: Store, token_id: str) -> Path:
    return Path(store.uri) / f"_service/tokens/{token_id}.json"


def kinds(store: Store) -> list[tuple[str, str, str]]:
    """What the audit has of tokens: kind, by whom, of whom."""
    return [(row["kind"], row["who"], row["details"]["name"]) for row in Audit(store).latest()]


def other_secret(text: str) -> str:
    return text[:-1] + ("a" if text[-1] != "a" else "b")


# --- making and checking ------------------------------------------------------------------------------------


def test_a_token_lets_its_holder_in_and_its_secret_is_kept_nowhere(store: Store) -> None:
    tokens = Tokens(store)
    assert not tokens.any_made() and not tokens.any_valid() and tokens.list() == []
    text, made = tokens.create("ada@lab.example", Role.submit, by="test")
    assert TEXT.fullmatch(text)
    for fresh in (False, True):
        assert tokens.check(text, fresh=fresh) == Holder("ada@lab.example", Role.submit, made.id)
    assert tokens.list() == [made] and tokens.any_made() and tokens.any_valid()
    assert store.names() == []
    kept = store.location.at("_service").entries(recursive=True)
    files = [store.location.at(f"_service/{entry.name}").read() for entry in kept if not entry.is_folder]
    assert len(files) == 2
    for content in (*files, repr(made), made.to_plain(), Audit(store).latest()):
        assert text[13:] not in str(content)


def test_a_revoked_token_ends_and_stays_listed(store: Store) -> None:
    tokens = Tokens(store)
    (first, made), (second, _) = (tokens.create("ada", Role.admin) for _ in range(2))
    tokens.revoke(made.id, by="test")
    assert tokens.check(first) is None and tokens.check(second) is not None
    assert [token.state() for token in tokens.list()] == ["revoked", "valid"]
    since = tokens.list()[0].revoked
    assert tokens.revoke(made.id).revoked == since
    assert kinds(store)[0] == ("token_revoked", "test", "ada") and len(kinds(store)) == 3


def test_roles_allow_what_lesser_ones_do() -> None:
    allowed = {role: {other for other in Role if role.allows(other)} for role in Role}
    assert allowed[Role.read] == {Role.read}
    assert allowed[Role.submit] == {Role.read, Role.submit}
    assert allowed[Role.admin] == set(Role)


@pytest.mark.parametrize(
    "name", ["", ".ada", "-ada", "@ada", "../x", "a/b", "a b", "ada\n", "ä", "a" * 65, "\0"]
)
def test_a_name_of_another_form_is_refused(local: Store, name: str) -> None:
    with pytest.raises(InputError, match="wanted a name of at most 64 letters, digits"):
        Tokens(local).create(name, Role.read)
    assert not Path(local.uri).exists()


@pytest.mark.parametrize("name", ["a", "7", "Ada.L_x-1@host", "a" * 64])
def test_a_name_of_the_form_is_taken(local: Store, name: str) -> None:
    tokens = Tokens(local)
    holder = tokens.check(tokens.create(name, Role.read)[0])
    assert holder is not None and holder.name == name


def test_a_token_expires(local: Store) -> None:
    clock = Clock()
    tokens = Tokens(local, now=clock)
    text, _ = tokens.create("ada", Role.read, days=2)
    clock.now += 2 * DAY_S - 1
    assert tokens.check(text) is not None and tokens.any_valid()
    clock.now += 1
    assert tokens.check(text) is None and tokens.check(text, fresh=True) is None
    assert not tokens.any_valid() and tokens.any_made()


@pytest.mark.parametrize("days", [0, -1, 3651, 10**12])
def test_days_beyond_reason_are_refused(local: Store, days: int) -> None:
    with pytest.raises(InputError, match=f"days: got {days}; wanted 1 to 3650"):
        Tokens(local).create("ada", Role.read, days)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokens, str]:
    """Tokens with one that holds."""
    tokens = Tokens(Store.open(str(tmp_path_factory.mktemp("one"))))
    return tokens, tokens.create("ada", Role.admin)[0]


NEARLY = st.from_regex(r"(cbe_|CBE_|cbe-)?([0-9a-f]{0,9}|\.\./x)_?[\w-]{0,50}(\n|/\.\.)?", fullmatch=True)


@given(presented=st.text() | NEARLY, fresh=st.booleans())
def test_what_is_no_token_is_never_taken_and_never_raises(
    one: tuple[Tokens, str], presented: str, fresh: bool
) -> None:
    tokens, text = one
    assert tokens.check(presented, fresh=fresh) is None
    assert tokens.check(text) is not None


@given(data=st.data())
def test_a_token_changed_in_any_place_is_not_taken(one: tuple[Tokens, str], data: st.DataObject) -> None:
    tokens, text = one
    place = data.draw(st.integers(0, len(text) - 1))
    instead = data.draw(st.sampled_from(["", text[place].swapcase(), text[place] * 2, "_", "-", "0", "é"]))
    changed = text[:place] + instead + text[place + 1 :]
    assert (tokens.check(changed) is not None) == (changed == text)


def test_another_secret_and_an_unknown_id_are_not_taken(store: Store) -> None:
    tokens = Tokens(store)
    text, made = tokens.create("ada", Role.read)
    unknown = text.replace(made.id, "00000000" if made.id != "00000000" else "11111111")
    for wrong in (other_secret(text), unknown):
        assert tokens.check(wrong) is None and tokens.check(wrong, fresh=True) is None
    assert tokens.known_id(other_secret(text)) == made.id
    assert tokens.known_id(unknown) == tokens.known_id("nonsense") == "?"


def broken(good: bytes) -> dict[str, bytes]:
    plain = json.loads(good)
    changed = {
        "another id": {"id": "0" * 8},
        "no role": {"role": "root"},
        "hostile name": {"name": "../x"},
        "short hash": {"sha256": plain["sha256"][:-1]},
        "time without zone": {"created": "2026-01-01T00:00:00"},
        "time is a number": {"created": 0},
        "expires is text": {"expires": "never"},
        "revoked is no time": {"revoked": True},
    }
    return {
        "empty": b"",
        "cut": good[:-20],
        "not UTF-8": b"\xff" + good,
        "deep": b"[" * 100_000,
        "list": b"[]",
        **{name: json.dumps(plain | change).encode() for name, change in changed.items()},
        **{
            f"no {key}": json.dumps({**plain, key: None}).encode() for key in ("id", "name", "role", "sha256")
        },
    }


def test_a_broken_file_is_no_token_but_tells_that_there_was_one(local: Store) -> None:
    tokens = Tokens(local)
    text, made = tokens.create("ada", Role.admin)
    good = path_of(local, made.id).read_bytes()
    for what, content in broken(good).items():
        path_of(local, made.id).write_bytes(content)
        assert tokens.check(text, fresh=True) is None, what
        assert tokens.check(text) is None and tokens.list() == [] and not tokens.any_valid(), what
        assert Tokens(local).any_made()
    path_of(local, made.id).write_bytes(good)
    assert tokens.check(text) is not None


def test_foreign_files_beside_tokens_are_left_out(local: Store) -> None:
    tokens = Tokens(local)
    _, made = tokens.create("ada", Role.read)
    folder = path_of(local, made.id).parent
    for name in ("README", "zz.json", f"{made.id}.json.bak", f".{made.id}.json.123"):
        (folder / name).write_text("{}")
    (folder / "0123abcd.json").mkdir()
    assert tokens.list() == [made]


def test_a_store_that_cannot_be_read_is_told_apart_from_a_wrong_token(local: Store) -> None:
    tokens = Tokens(local)
    text, made = tokens.create("ada", Role.read)
    path_of(local, made.id).unlink()
    path_of(local, made.id).mkdir()
    with pytest.raises(RunError, match="tokens cannot be checked"):
        tokens.check(text)


def test_only_their_owner_reads_the_files(local: Store) -> None:
    before = os.umask(0)
    try:
        _, made = Tokens(local).create("ada", Role.read)
        Tokens(local).revoke(made.id)
    finally:
        os.umask(before)
    path = path_of(local, made.id)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_tokens_made_and_revoked_at_once_do_not_disturb_each_other(local: Store) -> None:
    def make_and_revoke(number: int) -> tuple[str, str]:
        tokens = Tokens(local)
        kept, _ = tokens.create(f"kept-{number}", Role.read)
        ended, made = tokens.create(f"ended-{number}", Role.read)
        tokens.revoke(made.id)
        return kept, ended

    with ThreadPoolExecutor(8) as pool:
        pairs = list(pool.map(make_and_revoke, range(24)))
    tokens = Tokens(local)
    assert len(tokens.list()) == 48
    assert all(tokens.check(kept) and not tokens.check(ended) for kept, ended in pairs)


# --- what is remembered of the store ------------------------------------------------------------------------


def test_a_token_revoked_elsewhere_writes_no_more_and_reads_for_seconds(local: Store) -> None:
    clock = Clock()
    here, elsewhere = Tokens(local, now=clock), Tokens(local, now=clock)
    text, made = elsewhere.create("ada", Role.submit)
    assert here.check(text) is not None
    elsewhere.revoke(made.id)
    clock.now += CACHE_S - 0.1
    assert here.check(text) is not None
    clock.now += 0.2
    assert here.check(text) is None


@pytest.mark.parametrize("how", ["revoked", "deleted"])
def test_a_refusal_of_a_write_holds_for_reads_too(local: Store, how: str) -> None:
    clock = Clock()
    here, elsewhere = Tokens(local, now=clock), Tokens(local, now=clock)
    text, made = elsewhere.create("ada", Role.submit)
    assert here.check(text) is not None
    if how == "revoked":
        elsewhere.revoke(made.id)
    else:
        path_of(local, made.id).unlink()
    assert here.check(text, fresh=True) is None and here.check(text) is None


def test_a_token_made_elsewhere_counts_at_once_though_it_was_tried_before(local: Store) -> None:
    here = Tokens(local, now=Clock())
    text, made = Tokens(local).create("ada", Role.read)
    path = path_of(local, made.id)
    path.rename(path.with_name("aside"))
    assert here.check(text) is None
    path.with_name("aside").rename(path)
    assert here.check(text) is not None


def test_a_clock_set_back_makes_nothing_last_longer(local: Store) -> None:
    clock = Clock()
    here = Tokens(local, now=clock)
    text, made = here.create("ada", Role.read)
    assert here.check(text) is not None
    Tokens(local).revoke(made.id)
    clock.now -= DAY_S
    assert here.check(text) is None


def test_few_tokens_are_remembered_however_many_there_are(local: Store) -> None:
    tokens = Tokens(local, now=Clock(), most=2)
    texts = [tokens.create(f"user-{number}", Role.read)[0] for number in range(3)]
    assert all(tokens.check(text) for text in texts)
    for token in tokens.list():
        path_of(local, token.id).unlink()
    assert [tokens.check(text) is not None for text in texts] == [False, True, True]


# --- revoking, and the audit --------------------------------------------------------------------------------


def test_an_unknown_id_is_refused_with_the_nearest(local: Store) -> None:
    tokens = Tokens(local)
    with pytest.raises(InputError, match="has no tokens; check --store"):
        tokens.revoke("0123abcd")
    _, made = tokens.create("ada", Role.read)
    for nearly in (made.id[:-1], "ada", "Ada"):
        with pytest.raises(InputError, match=rf"'{nearly}'.* did you mean {made.id} \(ada\)\?"):
            tokens.revoke(nearly)
    for nothing_like_it in ("", "../../x", "zzzz"):
        with pytest.raises(InputError, match="`cbe token list` tells them"):
            tokens.revoke(nothing_like_it)
    assert tokens.any_valid()


def test_a_whole_token_can_be_revoked_and_a_torn_one_is_not_repeated(local: Store) -> None:
    tokens = Tokens(local)
    text, made = tokens.create("ada", Role.read)
    for torn in (text[:-1], text[1:], text[13:], text + "x"):
        with pytest.raises(InputError) as refused:
            tokens.revoke(torn)
        assert text[20:30] not in str(refused.value)
    assert tokens.revoke(text).id == made.id and tokens.check(text) is None


def test_no_token_is_made_of_which_there_is_no_record(local: Store) -> None:
    events = Path(local.uri) / "_service/events"
    events.parent.mkdir(parents=True)
    events.write_text("in the way of the folder")
    with pytest.raises(RunError, match=r"events.* could not be written"):
        Tokens(local).create("ada", Role.read)
    assert Tokens(local).list() == []


def test_a_token_is_revoked_though_there_can_be_no_record_and_that_is_told(local: Store) -> None:
    tokens = Tokens(local)
    text, made = tokens.create("ada", Role.read)
    with small_files(1000), pytest.raises(RunError, match=r"events.* could not be written"):
        tokens.revoke(made.id)  # a token's file is small enough, a table's is not
    assert tokens.check(text) is None


# --- failed logins ------------------------------------------------------------------------------------------


# --- the command --------------------------------------------------------------------------------------------


def test_the_command_makes_lists_and_revokes_tokens(cbe_: Cbe, tmp_path: Path) -> None:
    made = cbe_("token", "create", "ada", "--role", "submit", "--days", 3)
    text = made.out.strip()
    assert made.code == 0 and TEXT.fullmatch(text) and text not in made.err
    assert "shown once" in made.err and "CBE_TOKEN" in made.err and "role submit" in made.err
    assert "It is the first" in made.err
    tokens = Tokens(Store.open(str(tmp_path / "results")))
    holder = tokens.check(text)
    assert holder is not None and (holder.name, holder.role) == ("ada", Role.submit)

    listed = cbe_("token", "list")
    assert listed.words.startswith("id name role state") and f"{holder.id} ada submit valid" in listed.words
    assert text[13:] not in listed.out
    (plain,) = json.loads(cbe_("token", "list", "--json").out)
    assert plain.keys() == {"id", "name", "role", "created", "expires", "revoked", "state"}
    assert (plain["id"], plain["state"]) == (holder.id, "valid")

    revoked = cbe_("token", "revoke", holder.id)
    assert revoked.code == 0 and revoked.out == "" and "is revoked" in revoked.err
    assert tokens.check(text, fresh=True) is None
    assert f"{holder.id} ada submit revoked" in cbe_("token", "list").words
    assert kinds(Store.open("results")) == [("token_revoked", "cli", "ada"), ("token_made", "cli", "ada")]


def test_the_command_gives_a_program_an_object(cbe_: Cbe) -> None:
    plain = json.loads(cbe_("token", "create", "bob", "--role", "read", "--store", "elsewhere", "--json").out)
    assert TEXT.fullmatch(plain["token"]) and plain["expires"] is None and "sha256" not in plain
    assert Tokens(Store.open("elsewhere")).check(plain["token"]) is not None


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["create", "../x", "--role", "read"], "wanted a name"),
        (["create", "ada"], "--role"),
        (["create", "ada", "--role", "root"], "'read', 'submit', 'admin'"),
        (["create", "ada", "--role", "read", "--days", "0"], "wanted 1 to 3650"),
        (["revoke", "0123abcd"], "has no tokens"),
        (["list", "--store", "nowhere"], "no such folder"),
    ],
)
def test_the_command_refuses_what_it_cannot_do(cbe_: Cbe, arguments: list[str], wanted: str) -> None:
    done = cbe_("token", *arguments)
    assert done.code == 2 and wanted in done.err and done.out == ""


def test_an_empty_list_says_how_to_begin(cbe_: Cbe) -> None:
    done = cbe_("token", "list")
    assert done.code == 0 and done.out == "" and "cbe token create" in done.err
    assert json.loads(cbe_("token", "list", "--json").out) == []
