"""npm: @microsoft/ai-chat-protocol as published, against a running server."""

from typing import Any

from tests.conformance.requirements import requirement
from tests.interop.conftest import Drive

SOUP = "recipes/lemon-barley-soup"
NOTE = "The spare key of the boathouse hangs behind the blue boat."


def user(content: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def talk(drive: Drive, demo: str, *turns: dict[str, Any], **plan: Any) -> list[dict[str, Any]]:
    return drive("chat_client.mjs", f"{demo}/chat", turns=turns, **plan)["turns"]


@requirement("chat:client:completion", "chat:client:stream")
def test_the_client_gets_completions_whole_and_streamed(demo: str, drive: Drive) -> None:
    question = [user("Which soup has lemon and barley?")]

    whole, streamed = talk(drive, demo, {"messages": question}, {"messages": question, "streams": True})

    completion, chunks = whole["completion"], streamed["chunks"]
    assert completion["message"]["role"] == "assistant"
    assert f"[{demo}/items/{SOUP}]" in completion["message"]["content"]
    assert "".join(each["delta"].get("content", "") for each in chunks) == completion["message"]["content"]
    assert chunks[0]["context"]["data_points"] == completion["context"]["data_points"]
    assert chunks[-1]["context"]["followup_questions"] == completion["context"]["followup_questions"]
    assert (whole["requests"], streamed["requests"]) == (1, 1)


@requirement("chat:client:errors")
def test_the_client_throws_what_went_wrong_and_does_not_ask_again(demo: str, drive: Drive) -> None:
    empty = [user(" ")]

    refused = talk(drive, demo, {"messages": empty}, {"messages": empty, "streams": True})
    [denied] = talk(drive, demo, {"messages": [user("soup")]}, key="wrong")

    assert [each["thrown"].startswith("The last message is empty") for each in refused] == [True, True]
    assert [each["requests"] for each in refused] == [1, 1]
    assert denied["thrown"].startswith("The API key is not valid")


@requirement("chat:client:session")
def test_the_client_continues_a_conversation_by_its_session(demo: str, drive: Drive) -> None:
    session = {"sessionState": {"browser": "b1", "tab": 7}}

    first, second = talk(
        drive,
        demo,
        {"messages": [user("lemon barley soup")], "options": session},
        {"messages": [user("with chicken")], "options": session, "streams": True},
    )

    assert first["completion"]["sessionState"] == session["sessionState"]
    own = second["chunks"][0]["context"]["portico"]
    assert second["chunks"][0]["sessionState"] == session["sessionState"]
    assert own["conversation"]["turn"] == 2
    assert own["items"][0]["name"] == "Lemon and Barley Soup with Chicken"


@requirement("chat:client:files")
def test_the_client_sends_files(demo: str, drive: Drive) -> None:
    files = [
        {"contentType": "text/plain", "text": NOTE},
        {"contentType": "text/markdown", "text": "# Nets\n\nMend them.", "name": "nets.md"},
    ]
    question = [user("Where does the spare key of the boathouse hang?", files=files)]

    whole, streamed = talk(drive, demo, {"messages": question}, {"messages": question, "streams": True})

    assert f"{NOTE} [file-1.txt]" in whole["completion"]["message"]["content"]
    assert whole["completion"]["context"]["data_points"]["citations"][:2] == ["file-1.txt", "nets.md"]
    assert "".join(each["delta"].get("content", "") for each in streamed["chunks"]).startswith(NOTE)
