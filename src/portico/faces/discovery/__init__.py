"""What machines read to find out what the site is and how to talk to it."""
