"""Answering a question in natural language, as a stream of events. Knows no protocol."""
