-- Schedules: what is to be started when. Every change of one is in one piece, and counted by its revision.
--
-- KEYS[1]  {tx}.schedulesH  hash: `<field> <schedule>` -> value; fields are
--            definition  JSON (schedules/model.py)
--            revision    counts changes, also that somebody took it: whoever has an older one changes nothing
--            next        fire that is due next (ms), '' for none
--            anchor      from when an interval counts (ms)
--            fired       last fire that was dealt with (ms); fires: how many transactions were started
--            started     the last transaction; error: why the last fire started none, '' if it did
-- KEYS[2]  {tx}.schedulesZ  sorted set: schedule -> when to look at it (ms): its next fire, or the end of the lease of
--            whoever took it; +inf for one that never fires
-- ARGV[1]  now (ms) for tests, '' for the time of the store
-- ARGV[2]  verb, then
--   get <schedule> …     {now, {schedule, definition, revision, next, anchor, fired, fires, started, error}, …}: those
--                        that there are
--   names                {schedule, …}
--   put <schedule> <revision that is expected, 0 for none> <definition> <next> <anchor> <most schedules>
--                        {'ok', revision}, {'changed'}, {'full'}
--   remove <schedule>    1 if it was there
--   take <most> <lease ms>
--                        {now, ms until the next look or -1, what get tells of those that were taken, …}
--   advance <schedule> <revision> <next> <fired> <transactions more> <last transaction> <error> <lease ms or 0>
--                        {'ok', revision} or {'lost'}. With a lease it stays taken, under the same revision

local hash, agenda, verb = KEYS[1], KEYS[2], ARGV[2]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local FIELDS = {'definition', 'revision', 'next', 'anchor', 'fired', 'fires', 'started', 'error'}

local function text(number) return string.format('%.0f', number) end

local function names_of(schedule)
  local names = {}
  for place, field in ipairs(FIELDS) do names[place] = field .. ' ' .. schedule end
  return names
end

local function revision_of(schedule)
  return tonumber(redis.call('HGET', hash, 'revision ' .. schedule) or 0)
end

-- nil if there is none
local function read(schedule)
  local values = redis.call('HMGET', hash, unpack(names_of(schedule)))
  if not values[1] then return nil end
  local found = {schedule}
  for place = 1, #FIELDS do found[place + 1] = values[place] or '' end
  return found
end

local function look_at(schedule, at_text)
  redis.call('ZADD', agenda, at_text == '' and '+inf' or at_text, schedule)
end

local VERBS = {}

function VERBS.get()
  local reply = {text(now)}
  for place = 3, #ARGV do reply[#reply + 1] = read(ARGV[place]) end
  return reply
end

function VERBS.names()
  return redis.call('ZRANGE', agenda, 0, -1)
end

function VERBS.put(schedule, expected, definition, next_text, anchor, most)
  local revision = revision_of(schedule)
  if revision ~= tonumber(expected) then return {'changed'} end
  if revision == 0 and redis.call('ZCARD', agenda) >= tonumber(most) then return {'full'} end
  -- A schedule that is made anew must not have a revision that somebody remembers of the one before.
  local new = revision > 0 and revision + 1 or redis.call('HINCRBY', hash, 'made', 1) * 1000000
  redis.call('HSET', hash, 'definition ' .. schedule, definition, 'revision ' .. schedule, text(new),
    'next ' .. schedule, next_text, 'anchor ' .. schedule, anchor)
  look_at(schedule, next_text)
  redis.call('PUBLISH', 'tx.agenda', '{tx}.')
  return {'ok', text(new)}
end

function VERBS.remove(schedule)
  redis.call('HDEL', hash, unpack(names_of(schedule)))
  return redis.call('ZREM', agenda, schedule)
end

function VERBS.take(most, lease_ms)
  local reply = {text(now), -1}
  for _, schedule in ipairs(redis.call('ZRANGEBYSCORE', agenda, '-inf', text(now), 'LIMIT', 0, most)) do
    redis.call('HINCRBY', hash, 'revision ' .. schedule, 1)
    local found = read(schedule)
    if found then
      look_at(schedule, text(now + tonumber(lease_ms)))
      reply[#reply + 1] = found
    else
      VERBS.remove(schedule)
    end
  end
  local head = redis.call('ZRANGE', agenda, 0, 0, 'WITHSCORES')
  if head[2] and head[2] ~= 'inf' then reply[2] = math.max(0, tonumber(head[2]) - now) end
  return reply
end

function VERBS.advance(schedule, revision, next_text, fired, more, started, problem, lease_ms)
  if revision_of(schedule) ~= tonumber(revision) then return {'lost'} end
  redis.call('HSET', hash, 'next ' .. schedule, next_text, 'error ' .. schedule, problem)
  if fired ~= '' then redis.call('HSET', hash, 'fired ' .. schedule, fired) end
  if started ~= '' then redis.call('HSET', hash, 'started ' .. schedule, started) end
  if more ~= '0' then redis.call('HINCRBY', hash, 'fires ' .. schedule, more) end
  if lease_ms ~= '0' then
    look_at(schedule, text(now + tonumber(lease_ms)))
  else
    revision = text(redis.call('HINCRBY', hash, 'revision ' .. schedule, 1))
    look_at(schedule, next_text)
  end
  return {'ok', revision}
end

return VERBS[verb](unpack(ARGV, 3, 10))
