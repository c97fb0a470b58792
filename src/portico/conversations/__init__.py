"""What is stored of conversations: transcripts, memories, feedback and attached files.

Every protocol opens a conversation with `dialogue.py`; each other module holds one kind of thing that is kept.
"""
