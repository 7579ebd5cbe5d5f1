"""`mqadmin` and `kourou admin`: reads options as Apache's, asks by `kourou.admin`, prints as Apache's.

options.py      what a command takes, and how its words are read
command.py      what a command is
screen.py       where it prints: text, or JSON
run.py          from words to exit code
registry.py     all commands
*_commands.py   the commands, by area
"""
