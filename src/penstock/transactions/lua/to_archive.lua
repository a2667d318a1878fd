-- uses: common
-- What was archived is removed, and more is handed out, to one node at a time.
--
-- KEYS[1]     prefix of the partition
-- ARGV[1]     node
-- ARGV[2]     how many more at most; 0 for none
-- ARGV[3..4]  how long the role lasts (ms), and how long nobody else gets it (ms, more)
-- ARGV[5…]    tx, run, …: these are safe in the archive
-- Reply       {0 none | 1 this node has the role, number of the batch, {tx, {field, value, …}, {trail entry, …}}, …}
--
-- The role has three states, told by two keys that expire:
--   neither     nobody has it: who asks gets it
--   both        the node named by the first gets work
--   the second  grace: nobody gets work, and whoever had the role can still say what it has done
-- What is handed out is marked with the number of its batch (field archive_batch): who gets it again after a crash
-- sees in which file it may be already. A record that began again meanwhile (run) stays.

local node, most = ARGV[1], tonumber(ARGV[2])
local MOST_BYTES = 16777216

for place = 5, #ARGV, 2 do
  local tx = ARGV[place]
  local is_read, record = pcall(fields_of, tx, {'state', 'owner', 'run'})
  if not is_read then record = {} end
  if record.state == 'ended' and (record.run or '0') == ARGV[place + 1] then
    redis.call('DEL', state_key(tx), prefix .. 'trailL:' .. tx)
    redis.call('ZREM', prefix .. 'indexZ', tx)
    redis.call('ZREM', prefix .. 'ownerZ:' .. (record.owner or ''), tx)
    redis.call('ZREM', prefix .. 'deadZ', tx)
    redis.call('ZREM', prefix .. 'toArchiveZ', tx)
  elseif not record.state then
    redis.call('ZREM', prefix .. 'toArchiveZ', tx)
  end
end
if most < 1 then return {0, 0} end

local lock1, lock2 = prefix .. 'toArchiveLock1', prefix .. 'toArchiveLock2'
local holder = redis.call('GET', lock1)
if not holder then
  if redis.call('EXISTS', lock2) == 1 then return {0, 0} end
  redis.call('SET', lock1, node, 'PX', ARGV[3])
  redis.call('SET', lock2, node, 'PX', ARGV[4])
elseif holder ~= node then
  return {0, 0}
end

local due = redis.call('ZRANGEBYSCORE', prefix .. 'toArchiveZ', '-inf', string.format('%.0f', now), 'LIMIT', 0, most)
if #due == 0 then return {1, 0} end
local batch = redis.call('INCR', prefix .. 'archiveN')
local reply, bytes = {1, batch}, 0
for _, tx in ipairs(due) do
  local is_read, flat = pcall(redis.call, 'HGETALL', state_key(tx))
  if not is_read or #flat == 0 then
    redis.call('ZREM', prefix .. 'toArchiveZ', tx)
  else
    local has_trail, entries = pcall(redis.call, 'LRANGE', prefix .. 'trailL:' .. tx, 0, -1)
    reply[#reply + 1] = {tx, flat, has_trail and entries or {}}
    for _, word in ipairs(flat) do bytes = bytes + #word end
    for _, entry in ipairs(has_trail and entries or {}) do bytes = bytes + #entry end
    redis.call('HSET', state_key(tx), 'archive_batch', batch)
    if bytes > MOST_BYTES then break end
  end
end
return reply
