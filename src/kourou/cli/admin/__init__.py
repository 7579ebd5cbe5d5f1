"""`mqadmin` and `kourou admin`: options and output of Apache's tools around `kourou.admin`.

options.py      options of a command, and parsing
command.py      the type of a command
screen.py       output: text, or JSON
run.py          from arguments to the exit code
registry.py     all commands
*_commands.py   the commands, by area
"""
