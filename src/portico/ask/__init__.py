"""Answering a question in natural language, as a stream of events. Knows no protocol.

`pipeline.py` has the order of the steps, and `events.py` what they yield. `understanding/` reads the question,
`item_finder.py` finds items in the words of schema.org, `ranking.py` orders them, and `answers.py` writes about them;
`llm.py` does so with a language model. `small_talk.py` and `command_runner.py` answer what is no search.
"""
