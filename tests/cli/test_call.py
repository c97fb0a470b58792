"""`portico call`: operations by name, their parameters, tasks and idempotency keys."""

import json
from functools import partial
from pathlib import Path

import pytest
from tests.cli.conftest import Portico

SITE = """
operations = ["own.py"]
[search]
embedder = "none:"
[store]
url = "sqlite:///s.db"
[[source]]
url = "rooms.jsonl"
[collections.rooms]
unknown = "keep"
"""
OWN = '''
"""Operations of a small inn."""
from portico.operations import Context, operation

@operation(kind="execute", danger="safe")
async def greet(context: Context, name: str, times: int = 1) -> str:
    """Say hello."""
    return " ".join([f"Hello {name}."] * times)

@operation(kind="execute", danger="safe", long=True, attempts=2)
async def bake(context: Context, loaves: int) -> dict[str, int]:
    """Takes a while."""
    for loaf in range(loaves):
        await context.progress((loaf + 1) / loaves, f"Loaf {loaf + 1}")
    return {"loaves": loaves}

@operation(kind="execute", danger="safe", long=True)
async def burn(context: Context) -> str:
    """Fails."""
    raise RuntimeError("smoke")

@operation(kind="execute", danger="safe")
async def drop(context: Context) -> str:
    """Fails at once, with a password in its message."""
    raise RuntimeError("no answer from https://me:hunter2@kitchen.example/")

@operation(kind="execute", danger="forbidden")
async def close_down(context: Context) -> str:
    """Nobody may."""
    return "closed"
'''


@pytest.fixture
def portico(portico_in: Portico, tmp_path: Path) -> Portico:
    """Commands in a folder with the site of a small inn."""
    (tmp_path / "portico.toml").write_text(SITE)
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "rooms.jsonl").write_text('{"id": "attic", "beds": 2}\n{"id": "7", "beds": 1}\n')
    portico_in(tmp_path, "load")
    return partial(portico_in, tmp_path)


def test_parameters_are_named_values_or_one_json_object(portico: Portico) -> None:
    assert portico("call", "greet", "name=Ada", "times=2").json == "Hello Ada. Hello Ada."
    assert portico("call", "greet", '{"name": "Ada"}').json == "Hello Ada."


def test_a_text_parameter_that_looks_like_a_number_stays_text(portico: Portico) -> None:
    assert portico("call", "get_room", "id=7").json["beds"] == 1
    assert portico("call", "greet", "name=7").json == "Hello 7."


def test_the_seven_operations_of_a_collection(portico: Portico) -> None:
    made = portico("call", "create_room", '{"id": "cellar", "input": {"beds": 4, "extra": {"view": "none"}}}').json
    changed = portico(
        "call",
        "update_room",
        json.dumps({"id": "cellar", "input": {"extra": {"damp": True}}, "if_match": made["_version"]}),
    ).json
    got = portico("call", "get_room", "id=cellar").json
    listed = portico("call", "list_rooms", '{"where": {"beds": {"$gte": 2}}, "order": [{"field": "beds"}]}').json
    counted = portico("call", "count_rooms").json
    found = portico("call", "search_rooms", "query=none").json
    gone = portico("call", "delete_room", "id=cellar").json

    assert got == changed
    assert {k: v for k, v in got.items() if k != "_version"} == {
        "id": "cellar",
        "beds": 4,
        "extra": {"view": "none", "damp": True},
    }
    assert [item["id"] for item in listed["items"]] == ["attic", "cellar"]
    assert counted == {"count": 3}
    assert [item["id"] for item in found["items"]] == ["cellar"]
    assert gone == {"id": "cellar", "deleted": True}


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("call", "get_room", "id=none"), 3, "rooms has no item 'none'"),
        (("call", "get_rooms", "id=none"), 3, "Did you mean get_room"),
        (("call", "get_room"), 2, "get_room needs 'id'"),
        (("call", "get_room", "id=attic", "color=red"), 2, "get_room has no parameter 'color'"),
        (("call", "greet", "name=Ada", "times=often"), 2, "times"),
        (("call", "greet", "name"), 2, "'name' is not a parameter"),
        (("call", "greet", "{broken"), 2, "is not JSON"),
        (("call", "close_down"), 4, "close_down is forbidden on this site"),
        (("call", "create_room", '{"id": "attic", "input": {}}'), 5, "attic"),
        (("call", "update_room", '{"id": "attic", "input": {"beds": 3}, "if_match": "0-old"}'), 5, "attic"),
    ],
)
def test_a_call_that_cannot_be_done_says_why_with_its_exit_code(
    portico: Portico, args: tuple[str, ...], code: int, says: str
) -> None:
    done = portico(*args)

    assert done.code == code
    assert says in done.err
    assert done.out == ""


def test_long_work_is_waited_for(portico: Portico) -> None:
    assert portico("call", "bake", "loaves=3").json == {"loaves": 3}


def test_long_work_that_fails_shows_the_task_and_fails_the_command(portico: Portico) -> None:
    done = portico("call", "burn")

    task = json.loads(done.out)
    assert done.code == 1
    assert (task["operation"], task["state"]) == ("burn", "failed")
    assert task["error"]["message"] == "burn failed"
    assert "smoke" not in done.out
    assert "RuntimeError('smoke')" in done.err


@pytest.mark.parametrize("operation", ["burn", "drop"])
def test_a_failing_operation_shows_its_exception_and_at_debug_level_its_traceback(
    portico: Portico, operation: str
) -> None:
    plain = portico("call", operation)
    debug = portico("call", operation, "--log-level", "debug", may_trace=True)

    assert (plain.code, debug.code) == (1, 1)
    assert f"{operation}: RuntimeError(" in plain.err
    assert "The operator's log" not in plain.err + debug.err
    assert "hunter2" not in plain.err + debug.err
    assert "own.py" in debug.err
    assert "Traceback" in debug.err


def test_the_site_file_can_ask_for_tracebacks(portico: Portico, tmp_path: Path) -> None:
    (tmp_path / "portico.toml").write_text(SITE + '[server]\nlog_level = "debug"\n')

    assert "Traceback" in portico("call", "drop", may_trace=True).err


def test_later_leaves_a_pending_task_for_a_server(portico: Portico) -> None:
    task = portico("call", "bake", "loaves=2", "--later").json

    assert (task["operation"], task["state"], task["result"]) == ("bake", "pending", None)
    assert portico("call", "get_task", f"id={task['id']}").json == task


def test_a_short_command_leaves_pending_work_of_others_for_those_who_have_time(portico: Portico) -> None:
    """`burn` may be tried once: a command that ends at once must not use up that try."""
    task = portico("call", "burn", "--later").json

    for _ in range(3):
        portico("call", "count_rooms")

    after = portico("call", "get_task", f"id={task['id']}").json
    assert after["state"] == "pending"


def test_a_pending_task_can_be_cancelled_once(portico: Portico) -> None:
    task = portico("call", "bake", "loaves=2", "--later").json

    cancelled = portico("call", "cancel_task", f"id={task['id']}").json
    again = portico("call", "cancel_task", f"id={task['id']}")

    assert cancelled["state"] == "cancelled"
    assert again.code == 5
    assert "already cancelled" in again.err


def test_a_key_makes_a_repeat_give_the_first_answer(portico: Portico) -> None:
    create = ("call", "create_room", '{"input": {"beds": 9}}', "--key", "k1")

    first, second = portico(*create).json, portico(*create).json
    other = portico("call", "create_room", '{"input": {"beds": 8}}', "--key", "k1")

    assert first == second
    assert portico("call", "count_rooms", '{"where": {"beds": 9}}').json == {"count": 1}
    assert other.code == 5
    assert "used with other parameters" in other.err


def test_a_key_makes_a_repeated_task_the_same_task(portico: Portico) -> None:
    first = portico("call", "bake", "loaves=1", "--later", "--key", "k").json
    second = portico("call", "bake", "loaves=1", "--later", "--key", "k").json

    assert first["id"] == second["id"]


def test_without_a_name_all_operations_are_listed(portico: Portico) -> None:
    listed = portico("call", "--json").json
    table = portico("call").out

    names = [each["operation"] for each in listed]
    assert names == sorted(names)
    assert set(names) == {
        *(
            "ask",
            "bake",
            "burn",
            "cancel_task",
            "close_down",
            "drop",
            "forget_memories",
            "get_task",
            "greet",
            "list_memories",
        ),
        *("create_memories", "run_workflow"),
        *("execute_agent", "record_execution_step", "complete_execution", "abort_execution"),
        *("get_execution_status", "cancel_execution", "retry_execution", "confirm_operation", "verify_challenge"),
        "list_pending_approvals",
        *("count_rooms", "create_room", "delete_room", "get_room", "list_rooms", "search_rooms", "update_room"),
    }
    assert all(name in table for name in names)
    greet = next(each for each in listed if each["operation"] == "greet")
    assert (greet["kind"], greet["danger"], greet["does"]) == ("execute", "safe", "Say hello.")


def test_text_that_no_file_can_hold_is_refused_not_a_crash(portico: Portico) -> None:
    done = portico("call", "create_room", '{"id": "x", "input": {"name": "\\ud800"}}')

    assert done.code == 2
