-- Limits: how many transactions of a pipeline or an owner may run at a time or begin in a second; who is paused.
--
-- limitsH: name -> `<paused 0|1> <concurrency> <rate a second> <burst> <max queued>`; 0 stands for no limit.
-- Names: p:<pipeline>, o:<owner>, g:<group> (of a group only paused and max queued count).
--
-- Who reaches the head of a queue and may not run is put aside in heldZ:<name>, so that others are not held up.
-- It comes back to its old place when somebody of that limit stops running, when a token is there (releaseZ), or
-- when the limit changes (releaseZ, at once).

local limits_seen = {}
local has_limits

local function limit_of(name)
  if has_limits == nil then has_limits = redis.call('EXISTS', prefix .. 'limitsH') == 1 end
  if not has_limits then return nil end
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

local function tokens_of(name, limit)
  local text = redis.call('HGET', prefix .. 'bucketH', name)
  if not text then return limit.burst end
  local tokens, at_ms = text:match('^(%S+) (%S+)$')
  return math.min(limit.burst, tonumber(tokens) + (now - tonumber(at_ms)) * limit.rate / 1000)
end

local function save_tokens(name, tokens)
  redis.call('HSET', prefix .. 'bucketH', name, string.format('%.6f %.0f', tokens, now))
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
  if limit.rate <= 0 or limit.paused then return end
  local missing = 1 - tokens_of(name, limit)
  local due_ms = now + math.max(1, math.ceil(missing * 1000 / limit.rate))
  redis.call('ZADD', prefix .. 'releaseZ', string.format('%.0f', due_ms), name)
end

-- Those who were put aside by a limit go back to their places, as many as have room (at most `most`).
local function release(name, most)
  local held = prefix .. 'heldZ:' .. name
  local limit = limit_of(name)
  local room = limit and room_of(name, limit, most) or most
  if room > 0 then
    local found = redis.call('ZPOPMIN', held, room)
    for place = 1, #found, 2 do
      local tx = found[place]
      local record = fields_of(tx, {'state', 'queue', 'group'})
      if record.state == 'queued' then
        redis.call('HDEL', state_key(tx), 'held')
        put_in_queue(tx, record.queue, record.group, found[place + 1])
      end
    end
  end
  if redis.call('EXISTS', held) == 1 then
    if not limit then
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
    look_later(stopped, limit_of(stopped))
    -- It would have had room with the other limit: that room is for whoever is held by it.
    for _, name in ipairs(counted) do release(name, 1) end
    return nil
  end
  for _, name in ipairs(counted) do
    local limit = limit_of(name)
    if limit.concurrency > 0 then redis.call('HINCRBY', prefix .. 'usageH', name, 1) end
    if limit.rate > 0 then save_tokens(name, tokens_of(name, limit) - 1) end
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
