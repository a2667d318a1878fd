-- uses: common
-- The record of a transaction, for whoever asks how it is.
--
-- KEYS[1]     prefix of the partition
-- ARGV[1]     tx
-- ARGV[2]     owner who must have it, '' for any
-- ARGV[3]     until when the caller listens for events, in ms from now; 0 for not
-- ARGV[4]     1: if it has ended, the caller is about to be told (markAsReplied): it counts as notified
-- ARGV[5]     1: … and a webhook that agreed to it is not sent any more (cancelWebhook)
-- ARGV[6]     1: with the trail
-- Reply       {now, {field, value, …}, {trail entry, …}}; {now} if there is none (of this owner)

local tx, key = ARGV[1], state_key(ARGV[1])
local record = fields_of(tx, {
  'owner', 'state', 'watched_ms', 'notified_ms', 'webhook', 'webhook_status', 'webhook_cancellable', 'run',
})
if not record.state or (ARGV[2] ~= '' and record.owner ~= ARGV[2]) then return {now} end

if record.state ~= 'ended' then
  local until_ms = now + tonumber(ARGV[3])
  if until_ms > now and until_ms > (tonumber(record.watched_ms) or 0) then
    redis.call('HSET', key, 'watched_ms', string.format('%.0f', until_ms))
  end
else
  if ARGV[4] == '1' and not record.notified_ms then
    redis.call('HSET', key, 'notified_ms', string.format('%.0f', now))
  end
  if ARGV[5] == '1' and record.webhook_cancellable == '1' and record.webhook_status == 'pending' then
    local member = tx .. ' complete.' .. (record.run or '0')
    if redis.call('ZREM', prefix .. 'webhooksZ', member) == 1 then
      redis.call('HSET', key, 'webhook_status', 'cancelled')
      local is_dead = redis.call('ZSCORE', prefix .. 'deadZ', tx)
      local delay_ms = setting(is_dead and 'dead_keep_ms' or 'archive_delay_ms')
      redis.call('ZADD', prefix .. 'toArchiveZ', string.format('%.0f', now + delay_ms), tx)
    end
  end
end
local entries = {}
if ARGV[6] == '1' then entries = redis.call('LRANGE', prefix .. 'trailL:' .. tx, 0, -1) end
return {now, redis.call('HGETALL', key), entries}
