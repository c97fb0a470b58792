"""When a source is due to be loaded again: an interval such as `30m`, or a cron line in UTC. Loads nothing."""

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from cronsim import CronSim, CronSimError

from portico.errors import ConfigError

SHORTEST = timedelta(seconds=30)
LONGEST = timedelta(days=7)
MAX_JITTER = timedelta(seconds=60)
FIRST_RETRY = timedelta(seconds=60)
LONGEST_RETRY = timedelta(hours=1)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_INTERVAL = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_HINT = "Write an interval from 30s to 7d, such as `15m`, or a cron line of five fields in UTC, such as `0 3 * * *`."


@dataclass(frozen=True, slots=True)
class Interval:
    """A load begins so long after the last one has ended."""

    length: timedelta

    def next_after(self, moment: datetime) -> datetime:
        return moment + self.length


@dataclass(frozen=True, slots=True)
class CronLine:
    """Loads begin at the minutes that a line of five fields describes."""

    line: str

    def next_after(self, moment: datetime) -> datetime:
        return next(CronSim(self.line, moment.astimezone(UTC)))


Schedule: TypeAlias = Interval | CronLine


def parse_schedule(text: str) -> Schedule:
    """Parse the setting `every` of a source."""
    match = _INTERVAL.fullmatch(text.strip())
    if match:
        length = timedelta(**{_UNITS[match[2]]: int(match[1])})
        if not SHORTEST <= length <= LONGEST:
            raise ConfigError(f"`every` of a source must be between 30s and 7d, not {text!r}", hint=_HINT)
        return Interval(length)
    schedule = CronLine(text)
    try:
        if len(text.split()) != 5:
            raise CronSimError("it has not five fields")
        schedule.next_after(datetime.now(UTC))
    except (CronSimError, StopIteration) as error:
        reason = str(error) or "it describes no moment"
        raise ConfigError(f"`every` of a source cannot be {text[:100]!r}: {reason}", hint=_HINT) from error
    return schedule


def next_load(schedule: Schedule, ended: datetime, failures: int, identity: str) -> datetime:
    """Return when a source is due whose last load ended then, after so many failures in a row.

    The jitter is the same in every process, so that all of them name the same time.
    """
    regular = schedule.next_after(ended)
    due = ended + retry_pause(failures, regular - ended) if failures else regular
    return due + _jitter(identity, ended, due - ended)


def retry_pause(failures: int, first: timedelta = FIRST_RETRY) -> timedelta:
    """Return the pause after so many failures in a row: it doubles, up to an hour."""
    return min(min(first, FIRST_RETRY) * 2 ** min(failures - 1, 12), LONGEST_RETRY)


def _jitter(identity: str, moment: datetime, wait: timedelta) -> timedelta:
    """Return up to a tenth of the wait, so that sources with one schedule do not all begin at once."""
    digest = hashlib.sha256(f"{identity}\n{moment.isoformat()}".encode()).digest()
    return int.from_bytes(digest[:4]) / 2**32 * min(wait / 10, MAX_JITTER)
