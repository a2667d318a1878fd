-- What all scripts of transactions share: time, names of keys, the record of a transaction, its trail.
--
-- KEYS[1] of every script is the prefix of its partition (`{p0}.`). Every key begins with it, so all of them
-- lie in one slot, and a script may touch whichever it finds it needs. After the prefix:
--
--   stateH:<tx>        hash: the record, see below
--   trailL:<tx>        list of JSON: what happened, oldest first
--   qAdminZ:<group>    sorted sets: who waits for a worker of the group (queues.lua). Admin: what people asked
--   qOutZ:<group>        for (retry, replay, undo); Out: who goes on (woken, children back, retried);
--   qInZ:<group>         In: who begins
--   fairH:<q>:<group>  hash: how far owners have got in a queue (queues.lua)
--   heldZ:<limit>      sorted set: who left the queue because of a limit, by its place in it (limits.lua)
--   usageH, bucketH    hashes: limit -> how many run; limit -> tokens and when (limits.lua)
--   limitsH            hash: p:<pipeline>, o:<owner>, g:<group> -> limit (limits.lua)
--   releaseZ           sorted set: limit -> when to look whether somebody may go on (ms)
--   processingZ        sorted set: tx -> since when a worker has it (ms)
--   leasesZ            sorted set: tx -> when its worker counts as dead (ms)
--   sleepingZ          sorted set: tx -> when it wakes (ms), +inf for one that waits for a switch alone
--   deadZ              sorted set: tx -> when it was given up (ms); brokenH: tx -> why, for records nobody can read
--   webhooksZ          sorted set: `<tx> <event>` -> when to look after it (ms)
--   toArchiveZ         sorted set: tx -> from when it may be archived (ms)
--   toArchiveLock1/2   string: who archives; until the second ends nobody else does (to_archive.lua)
--   archiveN           string: number of the last batch that was handed to an archiver
--   outboxL, outboxH   list: number, destination, payload in turn; hash: destination -> last number (outbox.lua)
--   outboxLock         string: who forwards; outboxDeadL: list of JSON: what no destination took, and why
--   indexZ             sorted set: tx -> when it was created (ms); ownerZ:<owner> likewise, of one owner
--   externalId:<owner> <id>   string: `<tx> <fingerprint>`, for its period (owners may have colons, not spaces)
--   pipelineH:<name>   hash: active version and the versions that may be started (pipeline.lua, registry.py)
--   settingsH          hash: archive_delay_ms, dead_keep_ms, max_losses
--   stats1H:<slot>, stats2H:<slot>, stats3H:<slot>   hashes of counters (statistics.lua)
--
-- Fields of a record that scripts read or write (model.py has the whole table):
--   state     queued, running, sleeping, waiting, joining, ended
--   status    running until it has ended, then how: success, failed, aborted, timeout, internal-error, cancelled
--   token     fencing token: counts how often it was taken. seq: last write of whoever has it
--   owner, pipeline, group, queue (Admin, Out, In), priority, held (limit that holds it back)
--   limits    the limits that count it as running
--   parent, join, slot   of a child: whose, of its how-manieth join, at which place
--   join_last, width, pending, hurry   of a parent: its last join, how many children that has, how many are not
--             back, 1 if the first failure ends the join; c:<join>.<slot> is what came back: `<status> <JSON>`
--   awaits    the switch it waits for; timed_out (1: it was not set in time)
--   s:<name>  a switch: `!` (not seen yet) or `=` (seen), then its value
--   data      number of the newest d:<n>; d:<n> is what step n gets (d:0 is the input), JSON
--   undo      steps that must be undone if it fails; cancel: why somebody wants it to end
--   losses    leases lost in a row
--   created_ms, queued_ms, taken_ms, ended_ms, deadline_ms, notified_ms, watched_ms (until when somebody listens)
--   webhook, webhook_status, webhook_progress, webhook_cancellable; w:<event> (report of a progress event)
--   run       how often it was begun again

local prefix = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local ENDINGS = {
  success = true, failed = true, aborted = true, timeout = true, ['internal-error'] = true, cancelled = true,
}

local function state_key(tx) return prefix .. 'stateH:' .. tx end

-- Named fields of a record as a table; those that are missing are nil.
local function fields_of(tx, names)
  local values = redis.call('HMGET', state_key(tx), unpack(names))
  local record = {}
  for place, name in ipairs(names) do record[name] = values[place] or nil end
  return record
end

-- What a reply of HGETALL says, as a table.
local function as_table(flat)
  local record = {}
  for place = 1, #flat, 2 do record[flat[place]] = flat[place + 1] end
  return record
end

local MAX_TRAIL = 1000

local function trail(tx, entry)
  local key = prefix .. 'trailL:' .. tx
  if redis.call('RPUSH', key, entry) > MAX_TRAIL then redis.call('LTRIM', key, -MAX_TRAIL, -1) end
end

-- An entry that scripts write themselves. Words must not need escaping but for `text`.
local function remark(tx, kind, text)
  trail(tx, '{"kind":"' .. kind .. '","at_ms":' .. string.format('%.0f', now)
    .. ',"note":' .. cjson.encode(text) .. '}')
end

local settings
local SETTINGS = {archive_delay_ms = 60000, dead_keep_ms = 604800000, max_losses = 5}

local function setting(name)
  if not settings then settings = as_table(redis.call('HGETALL', prefix .. 'settingsH')) end
  return tonumber(settings[name]) or SETTINGS[name]
end

-- What pcall caught, as text: servers raise tables, Lua raises strings.
local function why(caught)
  return type(caught) == 'table' and caught.err or tostring(caught)
end

-- Somebody listens to this one: an event wakes them.
local function tell(tx, watched_ms, event)
  if (tonumber(watched_ms) or 0) > now then redis.call('PUBLISH', 'tx.events.' .. tx, event) end
end

-- A record that nobody can work with leaves the way of others, and waits for somebody to look at it.
local function give_up_broken(tx, why)
  redis.call('HSET', prefix .. 'brokenH', tx, why)
  redis.call('ZADD', prefix .. 'deadZ', string.format('%.0f', now), tx)
  for _, name in ipairs({'processingZ', 'leasesZ', 'sleepingZ'}) do redis.call('ZREM', prefix .. name, tx) end
end
