-- uses: common
-- An archived transaction comes back, so that it can be replayed. It is archived again after the delay.
--
-- KEYS[1]     prefix of the partition
-- ARGV[1]     tx
-- ARGV[2]     how many words of fields follow; then name, value, …
-- ARGV[…]     trail entries
-- Reply       1, or 0 if it is there already

local tx, length = ARGV[1], tonumber(ARGV[2])
if redis.call('EXISTS', state_key(tx)) == 1 then return 0 end
for place = 3, 2 + length, 2 do redis.call('HSET', state_key(tx), ARGV[place], ARGV[place + 1]) end
for place = 3 + length, #ARGV do trail(tx, ARGV[place]) end
local record = fields_of(tx, {'owner', 'created_ms'})
local created = string.format('%.0f', tonumber(record.created_ms) or now)
redis.call('ZADD', prefix .. 'indexZ', created, tx)
redis.call('ZADD', prefix .. 'ownerZ:' .. (record.owner or ''), created, tx)
redis.call('ZADD', prefix .. 'toArchiveZ', string.format('%.0f', now + setting('archive_delay_ms')), tx)
return 1
