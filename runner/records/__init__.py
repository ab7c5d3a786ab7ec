"""Records on disk: a folder a command, command.json, and what is scrubbed before anything is written."""
