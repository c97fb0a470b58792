"""What may run. Every request to the site is decided here."""
