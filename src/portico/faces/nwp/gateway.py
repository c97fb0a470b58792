"""What a gateway makes of an invocation: a task for workers (NOP), as steps that the site runs."""

from collections.abc import Callable, Mapping
from typing import Any

from portico.calls import Call
from portico.faces.nwp.frames import TaskFrame
from portico.faces.nwp.nodes import Node


def one_step(call: Call, id: str, trace: str) -> Call:
    """A call as a task of one step."""
    raise NotImplementedError


def workflow_of(frame: TaskFrame, node: Node, check: Callable[[str], None]) -> Mapping[str, Any]:
    """The steps of a task frame as parameters of `run_workflow`. Each action is checked by its id."""
    raise NotImplementedError
