"""The Lua room: scripts as Redis runs them, behind walls.

============  ==========================================================
runtime       compiles and runs scripts, ends those that take too much
sandbox       the interpreter, its memory, and how Python meets it
convert       replies to Lua values and back
shebang       the flags in a script's first line
bytecode      keeps line numbers that tail calls would lose
libraries     parts of the script libraries that are written in Python
lua           everything that is written in Lua, one chunk a concern
============  ==========================================================

The only room that knows lupa. It knows no command: the engine hands in a callable.
"""
