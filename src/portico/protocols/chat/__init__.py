"""The AI Chat Protocol (2024-05-29): questions as messages, answers as one object or as lines of JSON.

requests.py   what a client sends             overrides.py      settings of a request
multipart.py  files that come with it         threads.py        which conversation it belongs to
turns.py      from a request to an answer     courtesy.py       greetings, which are no questions
render.py     events to messages and chunks   points.py         items as data points and citations
routes.py     the addresses                   conversations.py  stored conversations and feedback
slashes.py    those that may end with one     familiar.py       those that older front ends expect
failures.py   errors
"""
