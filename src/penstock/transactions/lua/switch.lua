-- uses: common statistics queues limits ending tending
-- Set a switch of a transaction, or read it.
--
-- KEYS[1]     prefix of the partition
-- ARGV[1]     set, delete, get (and acknowledge), peek
-- ARGV[2]     tx
-- ARGV[3]     owner who must have it, '' for any
-- ARGV[4]     name
-- ARGV[5]     value, for set
-- ARGV[6]     how many switches a transaction may have
-- ARGV[7]     who does it, for the trail
-- Reply       set, delete: {'nochange'}, {'updated'}, {'woken'}
--             get, peek: {'ok', 1 if it is new since it was last acknowledged, value}; {'ok', 0} if it is not set
--             {'unknown'}: no such transaction; {'ended'}; {'full'}: too many switches
-- A change that the transaction has not seen yet is marked, so that whoever decides to wait for it does not.

local verb, tx, field = ARGV[1], ARGV[2], 's:' .. ARGV[4]
local record = fields_of(tx, {
  'state', 'owner', 'group', 'priority', 'queue', 'awaits', 'watched_ms', 'held', field,
})
if not record.state or (ARGV[3] ~= '' and record.owner ~= ARGV[3]) then return {'unknown'} end
local old = record[field]

if verb == 'get' or verb == 'peek' then
  if not old then return {'ok', 0} end
  if verb == 'get' and old:sub(1, 1) == '!' then redis.call('HSET', state_key(tx), field, '=' .. old:sub(2)) end
  return {'ok', old:sub(1, 1) == '!' and 1 or 0, old:sub(2)}
end

if record.state == 'ended' then return {'ended'} end
if verb == 'delete' then
  if redis.call('HDEL', state_key(tx), field) == 0 then return {'nochange'} end
  redis.call('HINCRBY', state_key(tx), 'switches', -1)
  remark(tx, 'switch', ARGV[7] .. ': ' .. ARGV[4] .. ' deleted')
  return {'updated'}
end
if old and old:sub(2) == ARGV[5] then return {'nochange'} end
if not old then
  local switches = tonumber(redis.call('HGET', state_key(tx), 'switches') or 0)
  if switches >= tonumber(ARGV[6]) then return {'full'} end
  redis.call('HSET', state_key(tx), 'switches', switches + 1)
end
redis.call('HSET', state_key(tx), field, '!' .. ARGV[5])
remark(tx, 'switch', ARGV[7] .. ': ' .. ARGV[4] .. '=' .. ARGV[5])
tell(tx, record.watched_ms, 'switch')
if record.state == 'waiting' and record.awaits == ARGV[4] then
  wake(tx, record)
  return {'woken'}
end
return {'updated'}
