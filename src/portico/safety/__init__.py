"""What may run. Everything that comes through a door of the site is decided here."""
