-- uses: common
-- Look, and change nothing.
--
-- KEYS[1..10]  see common.lua
-- ARGV[1]      state, log, waiting, or statistics
-- ARGV[2]      endpoint (but for statistics)
-- ARGV[3]      log: entries below this number, 0 for the newest. waiting: rows after this one, '' for the first
-- ARGV[4]      how many at most
-- Reply        state: its msgpack, or nothing. log: {entry, …}, newest first.
--              waiting: {last row or '', delivery, …}, the first due first.
--              statistics: {now, waiting, leased, finished, dead, endpoints, name, value, name, value, …}

local endpoint = ARGV[2]

local function read_log()
  local state = common.state(endpoint)
  local below = tonumber(ARGV[3])
  if below == 0 or below > state.log_next then below = state.log_next end
  local entries = {}
  for number = below - 1, math.max(state.log_first, below - tonumber(ARGV[4])), -1 do
    entries[#entries + 1] = redis.call('HGET', KEYS[9], endpoint .. ' ' .. number) or nil
  end
  return entries
end

local function read_waiting()
  local first = ARGV[3] == '' and '[' .. endpoint .. ' ' or '(' .. ARGV[3]
  local rows = redis.call('ZRANGEBYLEX', KEYS[3], first, '(' .. endpoint .. '!', 'LIMIT', 0, ARGV[4])
  local reply = {rows[#rows] or ''}
  for _, found in ipairs(rows) do
    local packed = common.packed(found:match('([^ ]+)$'))
    if packed then reply[#reply + 1] = packed end
  end
  return reply
end

local function read_statistics()
  local reply = {common.now}
  for _, key in ipairs({KEYS[3], KEYS[5], KEYS[8], KEYS[7]}) do
    reply[#reply + 1] = redis.call('ZCARD', key)
  end
  reply[#reply + 1] = redis.call('HLEN', KEYS[6])
  for _, word in ipairs(redis.call('HGETALL', KEYS[10])) do reply[#reply + 1] = word end
  return reply
end

if ARGV[1] == 'state' then return redis.call('HGET', KEYS[6], endpoint) end
if ARGV[1] == 'log' then return read_log() end
if ARGV[1] == 'waiting' then return read_waiting() end
return read_statistics()
