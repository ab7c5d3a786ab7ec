"""Git for tests that make repositories."""

import subprocess


def git(folder, *arguments):
    """What a git command says in a folder, without what is around it."""
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()
