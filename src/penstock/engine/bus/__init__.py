"""Signalling between the processes that share a store.

Three truths, kept apart. The database is the only truth about messages and waiters;
flock is the only truth about life; a FIFO says no more than "look again". The file half:

    files.py       names on disk, descriptors that a forked child never keeps
    endpoint.py    ``Endpoint``: the one address at which a process is signalled; the door
                   through which the others are imported
    liveness.py    ``probe``, ``sweep``: who is dead, and the burial
    signalling.py  ``signal``, ``Signaller``: one byte into somebody's FIFO

These four know nothing of LMDB, commands or sessions. The table half (who subscribes, who
waits, what is queued) is in the other modules; its rows carry the endpoint's id and are
written in the same transaction as the data.

Protocol
--------
Create   1 id = 20 random bytes             4 path still names the locked inode, else new id
         2 open lock file O_CREAT|O_EXCL    5 mkfifo, open read end, then own write end
         3 flock EX|NB, refused: new id     6 caller: one transaction registers the id
Publish  begin; ``probe`` each recipient once: alive → insert, dead → delete its rows;
         commit; ``Signaller.signal`` each living, ``bury()`` each dead
         (``release()`` each dead if the transaction aborted)
Wait     loop: ticket = ``drain()``; look in a transaction, found → done;
         ``wait(min(remaining, tick), ticket)``; at the deadline one last look
Close    delete rows; commit; ``Endpoint.close()``: unlink FIFO, unlink lock, close, lock last
Open     ``sweep()``; delete the rows of every id returned; commit; ``bury()`` each

No wake-up is lost: a commit before the look is seen by it; a commit after the look
writes its byte after the drain, so the wait returns at once. A spurious wake costs a look.

Invariants
----------
 I1  An id is never used twice (160 random bits and O_EXCL). Hence a dead endpoint stays
     dead, and unlinking by name can never hit somebody else's file.
 I2  Whoever lives holds flock EX on the inode that ``<hex>.lock`` names.
 I3  The lock file is created before the FIFO and unlinked after it, so a FIFO without
     a lock file belongs to nobody.
 I4  Files are created before rows and unlinked after rows are gone, so whatever has
     rows can be found by sweeping the files.
 I5  Of an id that might still be in creation (``sweep``), rows and files are removed only
     while holding its lock: its creator is then refused (step 3) or finds the name
     gone (step 4).
 I6  Signal after commit; drain, then look, then sleep.
 I7  The read end is open from before registration until close, together with an own
     write end: a byte persists until drained, and poll never reports hang-up.
 I8  Bytes leave the FIFO only under the endpoint's mutex, only while no thread polls it,
     and always advance the epoch, so one thread's drain cannot swallow another's wake-up.
 I9  A forked child closes its copies of the descriptors and does nothing else: no
     LOCK_UN (it would unlock the parent), no unlink.
 I10 Any doubt means alive: a living one called dead loses messages, a dead one called
     alive costs a queue until the next probe.

Crashes
-------
    crash point                              left behind              cleaned by
    ---------------------------------------  -----------------------  --------------------------
    owner, create 2 .. before 6 commits      files, no rows           sweep, after its age limit
    owner, any time later                    files, rows, queue       next publish to it; sweep
    owner in close, before rows are deleted  files, rows              next publish to it; sweep
    owner in close, before unlink of FIFO    both files               sweep
    owner in close, before unlink of lock    lock file                sweep
    publisher before commit                  nothing                  (transaction rolls back)
    publisher between commit and byte        message, no signal       reader's tick, next signal
    publisher or sweeper before burial       files, no rows           sweep (the lock is free again)
    burial between FIFO and lock             lock file                sweep
    machine (files lost, rows kept)          rows, no files           probe: ENOENT is dead
    owner stopped (SIGSTOP)                  it is alive              nobody; queues are bounded
    owner forked, then died                  as owner any time later  same (I9)

While one process holds a dead endpoint for burial, others take it for alive. So whoever
deletes the rows of a dead waiter also signals those who wait behind it.
"""
