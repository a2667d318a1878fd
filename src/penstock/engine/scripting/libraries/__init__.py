"""The parts of script libraries that Python does better than Lua 5.1: integers and byte layouts."""
