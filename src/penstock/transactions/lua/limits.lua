-- Limits: how many transactions of a pipeline or an owner may run at a time or begin in a second; who is paused.
--
-- limitsH: name -> `<paused 0|1> <concurrency> <rate a second> <burst> <max queued>`; 0 stands for no limit.
-- Names: p:<pipeline>, o:<owner>, g:<group> (of a group only paused and max queued count).
--
-- Who reaches the head of a queue and may not run is put aside in heldZ:<name>, so that others are not held up.
-- It comes back to its old place when somebody of that limit stops running, when a token is there (releaseZ), or
-- when the limit changes (releaseZ, at once). Whoever was let go may never use its room (it was cancelled, or nobody
-- works for its group), so as long as anybody is held there is another look after a second.

local limits_seen = {}
local has_limits

-- Whether there are limits, or somebody who was held by one that is gone. Most stores have neither.
local function look_for_limits()
  if has_limits == nil then has_limits = redis.call('EXISTS', prefix .. 'limitsH', prefix .. 'releaseZ') > 0 end
  return has_limits
end

local function limit_of(name)
  if not look_for_limits() then return nil end
  if limits_seen[name] == nil then
    local text = redis.call('HGET', prefix .. 'limitsH', name)
    local limit = false
    if text then
      local paused, concurrency, rate, burst, queued = text:match('^(%S+) (%S+) (%S+) (%S+) (%S+)$')
      limit = {
        paused = paused == '1', concurrency = tonumber(concurrency), rate = tonumber(rate),
        burst = math.max(1, tonumber(burst)), queued = tonumber(queued),
      }
    end
    limits_seen[name] = limit
  end
  return limits_seen[name] or nil
end

local LOOK_AGAIN_MS = 1000

local function save_tokens(name, tokens)
  redis.call('HSET', prefix .. 'bucketH', name, string.format('%.6f %.0f', tokens, now))
end

local function tokens_of(name, limit)
  local text = redis.call('HGET', prefix .. 'bucketH', name)
  local tokens, at_ms = (text or ''):match('^(%S+) (%S+)$')
  tokens, at_ms = tonumber(tokens), tonumber(at_ms)
  if not (tokens and at_ms) then return limit.burst end
  if at_ms > now then -- the clock was set back
    save_tokens(name, tokens)
    at_ms = now
  end
  return math.min(limit.burst, tokens + (now - at_ms) * limit.rate / 1000)
end

-- How many more may run now by this limit, if only `most` matter.
local function room_of(name, limit, most)
  if limit.paused then return 0 end
  local room = most
  if limit.concurrency > 0 then
    room = math.min(room, limit.concurrency - tonumber(redis.call('HGET', prefix .. 'usageH', name) or 0))
  end
  if limit.rate > 0 then room = math.min(room, math.floor(tokens_of(name, limit) + 1e-6)) end
  return math.max(room, 0)
end

local function look_later(name, limit)
  if limit.paused then return end
  local missing = limit.rate > 0 and 1 - tokens_of(name, limit) or 0
  local wait_ms = missing > 0 and math.max(1, math.ceil(missing * 1000 / limit.rate)) or LOOK_AGAIN_MS
  redis.call('ZADD', prefix .. 'releaseZ', string.format('%.0f', now + wait_ms), name)
end

-- Back to its old place; says whether it is there now.
local function let_go(tx, score)
  local is_read, record = pcall(fields_of, tx, {'state', 'queue', 'group'})
  if is_read and record.state ~= 'queued' then return false end
  if not (is_read and record.queue and record.group) then
    give_up_broken(tx, 'its record cannot be read, or lacks queue or group')
    return false
  end
  redis.call('HDEL', state_key(tx), 'held')
  count_held(record.queue, record.group, -1)
  put_in_queue(tx, record.queue, record.group, score)
  return true
end

-- Those who were put aside by a limit go back to their places, as many as have room (at most `most`).
local function release(name, most)
  local held = prefix .. 'heldZ:' .. name
  local limit = limit_of(name)
  local is_open = not limit or not (limit.paused or limit.concurrency > 0 or limit.rate > 0)
  local room = is_open and most or room_of(name, limit, most)
  while room > 0 do
    local found = redis.call('ZPOPMIN', held, room)
    if #found == 0 then break end
    for place = 1, #found, 2 do
      if let_go(found[place], found[place + 1]) then room = room - 1 end
    end
  end
  if redis.call('EXISTS', held) == 1 then
    if is_open then
      redis.call('ZADD', prefix .. 'releaseZ', string.format('%.0f', now), name)
    else
      look_later(name, limit)
    end
  end
end

-- Whether it may run. If not it is put aside; if so it counts, and `limits` of its record names what counts it.
local function enter_limits(tx, record, score)
  local names = {'p:' .. record.pipeline, 'o:' .. record.owner}
  local counted, stopped = {}, nil
  for _, name in ipairs(names) do
    local limit = limit_of(name)
    if limit then
      if room_of(name, limit, 1) == 0 then stopped = stopped or name else counted[#counted + 1] = name end
    end
  end
  if stopped then
    redis.call('ZADD', prefix .. 'heldZ:' .. stopped, score, tx)
    redis.call('HSET', state_key(tx), 'held', stopped)
    count_held(record.queue, record.group, 1)
    look_later(stopped, limit_of(stopped))
    -- It would have had room with the other limit: that room is for whoever is held by it.
    for _, name in ipairs(counted) do release(name, 1) end
    return nil
  end
  for _, name in ipairs(counted) do
    local limit = limit_of(name)
    redis.call('HINCRBY', prefix .. 'usageH', name, 1)
    if limit.rate > 0 then
      save_tokens(name, tokens_of(name, limit) - 1)
      if redis.call('EXISTS', prefix .. 'heldZ:' .. name) == 1 then look_later(name, limit) end
    end
  end
  return table.concat(counted, ' ')
end

-- It runs no more: its place is free.
local function leave_limits(text)
  if not text or text == '' then return end
  for name in text:gmatch('%S+') do
    local left = redis.call('HINCRBY', prefix .. 'usageH', name, -1)
    if left <= 0 then redis.call('HDEL', prefix .. 'usageH', name) end
    release(name, 1)
  end
end
