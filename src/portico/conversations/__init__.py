"""What is stored of conversations: transcripts, memories, feedback and attached files."""
