"""When sources are due."""

from datetime import UTC, datetime, timedelta

import pytest

from portico.errors import ConfigError
from portico.sources.schedule import MAX_JITTER, Interval, next_load, parse_schedule, retry_pause

THURSDAY = datetime(2026, 11, 19, 12, 7, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", timedelta(seconds=30)),
        ("15m", timedelta(minutes=15)),
        ("1h", timedelta(hours=1)),
        ("168h", timedelta(days=7)),
        ("7d", timedelta(days=7)),
    ],
)
def test_an_interval_counts_from_the_end_of_the_last_load(text: str, expected: timedelta) -> None:
    schedule = parse_schedule(text)

    assert schedule == Interval(expected)
    assert schedule.next_after(THURSDAY) == THURSDAY + expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("* * * * *", "2026-11-19 12:08"),
        ("*/15 * * * *", "2026-11-19 12:15"),
        ("0 3 * * *", "2026-11-20 03:00"),
        ("5,10 9-17 * * mon-fri", "2026-11-19 12:10"),
        ("0 6 * * SUN", "2026-11-22 06:00"),
        ("0 6 * * 7", "2026-11-22 06:00"),
        ("0 0 1 jan *", "2027-01-01 00:00"),
        ("0 0 29 2 *", "2028-02-29 00:00"),
        ("0 12 1-7 * */2", "2026-12-01 12:00"),  # a star: the day must fit both
        ("0 12 25 * FRI", "2026-11-20 12:00"),  # no star: either day fits
        ("0 12 20-25/5 * *", "2026-11-20 12:00"),
    ],
)
def test_a_cron_line_names_the_next_minute_in_utc(line: str, expected: str) -> None:
    assert f"{parse_schedule(line).next_after(THURSDAY):%Y-%m-%d %H:%M}" == expected


@pytest.mark.parametrize(
    "text",
    [
        *("29s", "8d", "0s", "1 hour", "1w", "h", "-1h", "1.5h", "٣m", "9999999999h", "@daily", ""),
        *("* * * *", "* * * * * *", "60 * * * *", "*/0 * * * *", "0 0 30 2 *", "5-1 * * * *", "x y z a b"),
    ],
)
def test_other_texts_are_refused_with_what_can_be_written(text: str) -> None:
    with pytest.raises(ConfigError, match="every") as refusal:
        parse_schedule(text)

    assert "15m" in str(refusal.value.hint)


def test_the_jitter_is_small_and_the_same_in_every_process_but_differs_between_sources() -> None:
    schedule = parse_schedule("1h")
    dues = [next_load(schedule, THURSDAY, 0, f"source {number}") for number in range(50)]

    assert dues == [next_load(schedule, THURSDAY, 0, f"source {number}") for number in range(50)]
    assert all(timedelta(0) <= due - THURSDAY - timedelta(hours=1) <= MAX_JITTER for due in dues)
    assert len(set(dues)) == 50
    short = next_load(parse_schedule("30s"), THURSDAY, 0, "source")
    assert short - THURSDAY <= timedelta(seconds=33)


def test_failures_double_the_pause_up_to_an_hour() -> None:
    pauses = [retry_pause(failures).total_seconds() for failures in (1, 2, 3, 6, 7, 50, 5000)]

    assert pauses == [60, 120, 240, 1920, 3600, 3600, 3600]


def test_a_failed_source_is_tried_before_its_regular_time_and_a_frequent_one_less_often() -> None:
    daily, often = parse_schedule("1d"), parse_schedule("30s")

    assert next_load(daily, THURSDAY, 1, "a") - THURSDAY <= timedelta(seconds=66)
    assert next_load(often, THURSDAY, 1, "a") - THURSDAY <= timedelta(seconds=33)
    assert next_load(often, THURSDAY, 5, "a") - THURSDAY >= timedelta(minutes=8)
