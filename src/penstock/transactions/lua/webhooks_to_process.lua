-- uses: common
-- Which webhooks are due; and what became of others.
--
-- KEYS[1]     prefix of the partition
-- ARGV[1]     how many at most; 0 for none
-- ARGV[2]     in ms: when to come back to what is handed out now. This is the lease: whoever takes it and dies
--             leaves it to the next
-- ARGV[3]     how many results follow, four words each: tx, event, outcome, comment
--               outcome delivered, failed (for good), cancelled: it is done with
--               outcome later: comment is in how many ms to come back to it
-- Reply       {ms until the next is due or -1, {tx, event, {field, value, …}}, …}
-- Events are `complete.<run>` and `progress.<number>` (its report is the field w:progress.<number>).

local function done(tx, event, outcome, comment)
  local member = tx .. ' ' .. event
  if outcome == 'later' then
    redis.call('ZADD', prefix .. 'webhooksZ', 'XX', string.format('%.0f', now + tonumber(comment)), member)
    return
  end
  local was_there = redis.call('ZREM', prefix .. 'webhooksZ', member) == 1
  local record = fields_of(tx, {'state', 'run'})
  if not was_there or not record.state then return end
  remark(tx, 'webhook', event .. ' ' .. outcome .. (comment ~= '' and ': ' .. comment or ''))
  if event:sub(1, 9) == 'progress.' then
    redis.call('HDEL', state_key(tx), 'w:' .. event)
    return
  end
  if event ~= 'complete.' .. (record.run or '0') or record.state ~= 'ended' then return end
  redis.call('HSET', state_key(tx), 'webhook_status', outcome, 'webhook_comment', comment,
    'webhook_ms', string.format('%.0f', now))
  local is_dead = redis.call('ZSCORE', prefix .. 'deadZ', tx)
  local delay_ms = setting(is_dead and 'dead_keep_ms' or 'archive_delay_ms')
  redis.call('ZADD', prefix .. 'toArchiveZ', string.format('%.0f', now + delay_ms), tx)
end

local results = tonumber(ARGV[3])
for index = 0, results - 1 do
  local place = 4 + 4 * index
  -- A record that cannot be read has left the list by then, and stops no other.
  pcall(done, ARGV[place], ARGV[place + 1], ARGV[place + 2], ARGV[place + 3])
end

local reply = {-1}
local most = tonumber(ARGV[1])
if most > 0 then
  local due = redis.call('ZRANGEBYSCORE', prefix .. 'webhooksZ', '-inf', string.format('%.0f', now), 'LIMIT', 0, most)
  for _, member in ipairs(due) do
    local tx, event = member:match('^(%S+) (%S+)$')
    local is_read, flat = pcall(redis.call, 'HGETALL', state_key(tx or ''))
    if not is_read or #flat == 0 then
      redis.call('ZREM', prefix .. 'webhooksZ', member)
    else
      redis.call('ZADD', prefix .. 'webhooksZ', string.format('%.0f', now + tonumber(ARGV[2])), member)
      reply[#reply + 1] = {tx, event, flat}
    end
  end
end
local head = redis.call('ZRANGE', prefix .. 'webhooksZ', 0, 0, 'WITHSCORES')
if head[2] then reply[1] = math.max(0, tonumber(head[2]) - now) end
return reply
